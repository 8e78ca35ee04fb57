# Turns the project's // comments into Doxygen's: /// above a declaration, ///< after one. A comment that continues a trailing one stays
# with it. The comment at the head of a file becomes the file's page.
1s|^// |/// \\file\n/// |
2,/^#pragma/s|^// |/// |
s|^\( *\)// |\1/// |
s|\([;,{})]\)  *// |\1  ///< |
# Doxygen would read these as commands or HTML.
/^ *\/\/\//s|@|\\@|g
/^ *\/\/\//s|<\([a-z0-9_:, ]*\)>|\&lt;\1\&gt;|g
