! A user's program in Fortran (iso_c_binding) over the C interface: an FFT against the sum, a fit, a least-squares solution, a refusal.
module ballast
  use, intrinsic :: iso_c_binding
  implicit none

  type, bind(c) :: dl_tensor
    type(c_ptr) :: data = c_null_ptr
    integer(c_int32_t) :: device_type = 1, device_id = 0
    integer(c_int32_t) :: ndim = 0
    integer(c_int8_t) :: code = 2, bits = 64
    integer(c_int16_t) :: lanes = 1
    type(c_ptr) :: shape = c_null_ptr, strides = c_null_ptr
    integer(c_int64_t) :: byte_offset = 0
  end type

  type, bind(c) :: kmeans_data
    integer(c_size_t) :: size = 0
    type(c_ptr) :: points = c_null_ptr, weights = c_null_ptr, centroids = c_null_ptr
  end type

  type, bind(c) :: kmeans_results
    integer(c_size_t) :: size = 0
    type(c_ptr) :: centroids = c_null_ptr, labels = c_null_ptr, inertia = c_null_ptr, iterations = c_null_ptr, stopped = c_null_ptr
  end type

  interface
    integer(c_int32_t) function ballast_error_create(error) bind(c)
      import
      type(c_ptr), intent(out) :: error
    end function
    subroutine ballast_error_destroy(error) bind(c)
      import
      type(c_ptr), value :: error
    end subroutine
    type(c_ptr) function ballast_error_message(error) bind(c)
      import
      type(c_ptr), value :: error
    end function
    integer(c_int32_t) function ballast_options_create(algorithm, options, error) bind(c)
      import
      character(kind=c_char), intent(in) :: algorithm(*)
      type(c_ptr), intent(out) :: options
      type(c_ptr), value :: error
    end function
    subroutine ballast_options_destroy(options) bind(c)
      import
      type(c_ptr), value :: options
    end subroutine
    integer(c_int32_t) function ballast_options_set_integer(options, name, value, error) bind(c)
      import
      type(c_ptr), value :: options
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: value
      type(c_ptr), value :: error
    end function
    integer(c_int32_t) function ballast_fft_plan_create_like(in, out, options, plan, error) bind(c)
      import
      type(dl_tensor), intent(in) :: in, out
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: plan
      type(c_ptr), value :: error
    end function
    integer(c_int32_t) function ballast_fft_run(plan, direction, in, out, call, report, error) bind(c)
      import
      type(c_ptr), value :: plan
      integer(c_int32_t), value :: direction
      type(dl_tensor), intent(in) :: in, out
      type(c_ptr), value :: call, report, error
    end function
    subroutine ballast_fft_plan_destroy(plan) bind(c)
      import
      type(c_ptr), value :: plan
    end subroutine
    integer(c_int32_t) function ballast_kmeans_plan_create(options, plan, error) bind(c)
      import
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: plan
      type(c_ptr), value :: error
    end function
    integer(c_int32_t) function ballast_kmeans_fit(plan, data, results, call, report, error) bind(c)
      import
      type(c_ptr), value :: plan
      type(kmeans_data), intent(in) :: data
      type(kmeans_results), intent(in) :: results
      type(c_ptr), value :: call, report, error
    end function
    subroutine ballast_kmeans_plan_destroy(plan) bind(c)
      import
      type(c_ptr), value :: plan
    end subroutine
    integer(c_int32_t) function ballast_qr_plan_create(options, plan, error) bind(c)
      import
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: plan
      type(c_ptr), value :: error
    end function
    integer(c_int32_t) function ballast_qr_gels(plan, A, B, call, report, error) bind(c)
      import
      type(c_ptr), value :: plan
      type(dl_tensor), intent(in) :: A, B
      type(c_ptr), value :: call, report, error
    end function
    subroutine ballast_qr_plan_destroy(plan) bind(c)
      import
      type(c_ptr), value :: plan
    end subroutine
  end interface
end module

program consumer
  use ballast
  implicit none
  type(c_ptr) :: error
  if (ballast_error_create(error) /= 0) error stop 1
  call transform()
  call cluster()
  call fit_a_line()
  call refused()
  call ballast_error_destroy(error)
  print '(a)', 'Ballast from Fortran: works'

contains

  subroutine check(status, what)
    integer(c_int32_t), intent(in) :: status
    character(*), intent(in) :: what
    if (status == 0) return
    print '(4a)', what, ': ', message()
    error stop 2
  end subroutine

  function message() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    call c_f_pointer(ballast_error_message(error), letters, [1024])
    text = ''
    do i = 1, 1024
      if (letters(i) == c_null_char) exit
      text = text // letters(i)
    end do
  end function

  ! The columns of a matrix, which lie one after the other in Fortran's order, are the rows of a tensor.
  subroutine transform()
    integer, parameter :: n = 12, columns = 2
    real(c_double), parameter :: pi = acos(-1.0d0)
    complex(c_double_complex), target :: x(n, columns), y(n, columns)
    integer(c_int64_t), target :: lengths(2) = [columns, n]
    complex(c_double_complex) :: sum
    type(dl_tensor) :: from, to
    type(c_ptr) :: plan
    integer :: column, j, k
    do column = 1, columns
      do j = 1, n
        x(j, column) = cmplx(sin(real(j * j + column, c_double)), cos(real(j, c_double)), c_double)
      end do
    end do
    from = dl_tensor(data=c_loc(x), ndim=2, code=5, bits=int(-128, c_int8_t), shape=c_loc(lengths))
    to = from
    to%data = c_loc(y)
    call check(ballast_fft_plan_create_like(from, to, c_null_ptr, plan, error), 'plan')
    call check(ballast_fft_run(plan, 0_c_int32_t, from, to, c_null_ptr, c_null_ptr, error), 'run')
    do column = 1, columns
      do k = 0, n - 1
        sum = 0
        do j = 0, n - 1
          sum = sum + x(j + 1, column) * exp(cmplx(0.0d0, -2 * pi * j * k / n, c_double))
        end do
        if (abs(sum - y(k + 1, column)) > 1d-12) error stop 3
      end do
    end do
    call ballast_fft_plan_destroy(plan)
  end subroutine

  subroutine cluster()
    real(c_double), target :: points(6) = [0.0d0, 0.1d0, 0.2d0, 10.0d0, 10.1d0, 10.2d0]
    integer(c_int32_t), target :: labels(6)
    real(c_double), target :: inertia
    integer(c_int64_t), target :: matrix(2) = [6, 1], vector(1) = [6]
    type(dl_tensor), target :: from, to
    type(kmeans_data) :: data
    type(kmeans_results) :: results
    type(c_ptr) :: options, plan
    from = dl_tensor(data=c_loc(points), ndim=2, shape=c_loc(matrix))
    to = dl_tensor(data=c_loc(labels), ndim=1, code=0, bits=32, shape=c_loc(vector))
    data%size = c_sizeof(data)
    data%points = c_loc(from)
    results%size = c_sizeof(results)
    results%labels = c_loc(to)
    results%inertia = c_loc(inertia)
    call check(ballast_options_create('kmeans' // c_null_char, options, error), 'options')
    call check(ballast_options_set_integer(options, 'points' // c_null_char, 6_c_int64_t, error), 'points')
    call check(ballast_options_set_integer(options, 'features' // c_null_char, 1_c_int64_t, error), 'features')
    call check(ballast_options_set_integer(options, 'clusters' // c_null_char, 2_c_int64_t, error), 'clusters')
    call set_precision(options)
    call check(ballast_kmeans_plan_create(options, plan, error), 'plan')
    call check(ballast_kmeans_fit(plan, data, results, c_null_ptr, c_null_ptr, error), 'fit')
    if (any(labels(1:3) /= labels(1)) .or. any(labels(4:6) /= labels(4)) .or. labels(1) == labels(4)) error stop 4
    if (abs(inertia - 0.04d0) > 1d-12) error stop 5
    call ballast_kmeans_plan_destroy(plan)
    call ballast_options_destroy(options)
  end subroutine

  subroutine set_precision(options)
    type(c_ptr), intent(in) :: options
    interface
      integer(c_int32_t) function ballast_options_set_text(options, name, value, error) bind(c)
        import
        type(c_ptr), value :: options
        character(kind=c_char), intent(in) :: name(*), value(*)
        type(c_ptr), value :: error
      end function
    end interface
    call check(ballast_options_set_text(options, 'precision' // c_null_char, 'f64' // c_null_char, error), 'precision')
  end subroutine

  ! Fortran's order is a stride of 1 along the rows: the matrix is used in place.
  subroutine fit_a_line()
    real(c_double), target :: A(3, 2) = reshape([1.0d0, 1.0d0, 1.0d0, 0.0d0, 1.0d0, 2.0d0], [3, 2]), b(3) = [1.0d0, 3.0d0, 5.0d0]
    integer(c_int64_t), target :: matrix(2) = [3, 2], strides(2) = [1, 3], vector(1) = [3]
    type(dl_tensor) :: of, right
    type(c_ptr) :: options, plan
    of = dl_tensor(data=c_loc(A), ndim=2, shape=c_loc(matrix), strides=c_loc(strides))
    right = dl_tensor(data=c_loc(b), ndim=1, shape=c_loc(vector))
    call check(ballast_options_create('qr' // c_null_char, options, error), 'options')
    call check(ballast_options_set_integer(options, 'rows' // c_null_char, 3_c_int64_t, error), 'rows')
    call check(ballast_options_set_integer(options, 'columns' // c_null_char, 2_c_int64_t, error), 'columns')
    call check(ballast_qr_plan_create(options, plan, error), 'plan')
    call check(ballast_qr_gels(plan, of, right, c_null_ptr, c_null_ptr, error), 'gels')
    if (abs(b(1) - 1) > 1d-13 .or. abs(b(2) - 2) > 1d-13) error stop 6
    call ballast_qr_plan_destroy(plan)
    call ballast_options_destroy(options)
  end subroutine

  subroutine refused()
    type(c_ptr) :: options
    if (ballast_options_create('dct' // c_null_char, options, error) /= 1) error stop 7
    if (index(message(), '"dct"') == 0) error stop 8
    print '(2a)', 'refused, as it must be: ', message()
  end subroutine
end program
