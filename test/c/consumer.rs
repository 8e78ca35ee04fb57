// A user's program in Rust over the C interface: an FFT against the sum, a fit with a callback, a least-squares solution, a refusal.
use std::ffi::{c_char, c_void, CStr};
use std::ptr::{null, null_mut};

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct KmeansData {
    size: usize,
    points: *const Tensor,
    weights: *const Tensor,
    centroids: *const Tensor,
}

#[repr(C)]
struct KmeansResults {
    size: usize,
    centroids: *const Tensor,
    labels: *const Tensor,
    inertia: *mut f64,
    iterations: *mut i32,
    stopped: *mut i32,
}

#[repr(C)]
struct Progress {
    size: usize,
    done: i64,
    total: i64,
    run: i64,
    value: f64,
    unit: *const c_char,
}

type OnProgress = extern "C" fn(*mut c_void, *const Progress) -> i32;

// Every handle is an address to Rust.
type Handle = *mut c_void;

extern "C" {
    fn ballast_error_create(error: *mut Handle) -> i32;
    fn ballast_error_destroy(error: Handle);
    fn ballast_error_message(error: Handle) -> *const c_char;
    fn ballast_options_create(algorithm: *const c_char, options: *mut Handle, error: Handle) -> i32;
    fn ballast_options_destroy(options: Handle);
    fn ballast_options_set_problem(options: Handle, token: *const c_char, direction: *mut i32, error: Handle) -> i32;
    fn ballast_call_create(call: *mut Handle, error: Handle) -> i32;
    fn ballast_call_destroy(call: Handle);
    fn ballast_call_set_on_progress(call: Handle, callback: OnProgress, user: *mut c_void, error: Handle) -> i32;
    fn ballast_fft_plan_create_like(input: *const Tensor, output: *const Tensor, options: Handle, plan: *mut Handle, error: Handle) -> i32;
    fn ballast_fft_plan_destroy(plan: Handle);
    fn ballast_fft_run(plan: Handle, direction: i32, input: *const Tensor, output: *const Tensor, call: Handle, report: Handle, error: Handle) -> i32;
    fn ballast_kmeans_plan_create(options: Handle, plan: *mut Handle, error: Handle) -> i32;
    fn ballast_kmeans_plan_destroy(plan: Handle);
    fn ballast_kmeans_fit(plan: Handle, data: *const KmeansData, results: *const KmeansResults, call: Handle, report: Handle, error: Handle) -> i32;
    fn ballast_qr_factor(a: *const Tensor, options: Handle, call: Handle, factors: *mut Handle, report: Handle, error: Handle) -> i32;
    fn ballast_factors_solve(factors: Handle, b: *const Tensor, x: *const Tensor, call: Handle, report: Handle, error: Handle) -> i32;
    fn ballast_factors_destroy(factors: Handle);
}

const FLOAT: u8 = 2;
const COMPLEX: u8 = 5;
const INT: u8 = 0;
const CANCELLED: i32 = 7;

fn tensor<T>(data: &mut [T], shape: &[i64], code: u8, bits: u8) -> Tensor {
    Tensor {
        data: data.as_mut_ptr() as *mut c_void,
        device_type: 1,
        device_id: 0,
        ndim: shape.len() as i32,
        code,
        bits,
        lanes: 1,
        shape: shape.as_ptr(),
        strides: null(),
        byte_offset: 0,
    }
}

fn text(bytes: &'static [u8]) -> *const c_char {
    assert_eq!(bytes.last(), Some(&0));
    bytes.as_ptr() as *const c_char
}

unsafe fn message(error: Handle) -> String {
    CStr::from_ptr(ballast_error_message(error)).to_string_lossy().into_owned()
}

unsafe fn check(status: i32, error: Handle) {
    assert_eq!(status, 0, "{}", message(error));
}

unsafe fn transform(error: Handle) {
    let n = 15;
    let mut input: Vec<f64> = (0..2 * n).map(|i| ((i * i) as f64).sin()).collect();
    let mut output = vec![0.0; 2 * n];
    let shape = [n as i64];
    let from = tensor(&mut input, &shape, COMPLEX, 128);
    let to = tensor(&mut output, &shape, COMPLEX, 128);
    let mut plan = null_mut();
    check(ballast_fft_plan_create_like(&from, &to, null_mut(), &mut plan, error), error);
    check(ballast_fft_run(plan, 0, &from, &to, null_mut(), null_mut(), error), error);
    for k in 0..n {
        let (mut re, mut im) = (0.0, 0.0);
        for j in 0..n {
            let (sin, cos) = (-2.0 * std::f64::consts::PI * (j * k) as f64 / n as f64).sin_cos();
            re += input[2 * j] * cos - input[2 * j + 1] * sin;
            im += input[2 * j] * sin + input[2 * j + 1] * cos;
        }
        assert!((output[2 * k] - re).abs() < 1e-12 && (output[2 * k + 1] - im).abs() < 1e-12);
    }
    ballast_fft_plan_destroy(plan);
}

extern "C" fn stop_at_once(user: *mut c_void, progress: *const Progress) -> i32 {
    unsafe {
        *(user as *mut i64) = (*progress).done;
    }
    1
}

unsafe fn cluster(error: Handle) {
    let mut points: [f64; 6] = [0.0, 0.1, 0.2, 10.0, 10.1, 10.2];
    let mut labels = [-1i32; 6];
    let (matrix, vector) = ([6i64, 1], [6i64]);
    let from = tensor(&mut points, &matrix, FLOAT, 64);
    let to = tensor(&mut labels, &vector, INT, 32);
    let mut inertia = 0.0;
    let (mut options, mut plan, mut call) = (null_mut(), null_mut(), null_mut());
    check(ballast_options_create(text(b"kmeans\0"), &mut options, error), error);
    check(ballast_options_set_problem(options, text(b"kmeans_f64_m6_n1_k2\0"), null_mut(), error), error);
    check(ballast_kmeans_plan_create(options, &mut plan, error), error);
    let data = KmeansData { size: std::mem::size_of::<KmeansData>(), points: &from, weights: null(), centroids: null() };
    let results = KmeansResults {
        size: std::mem::size_of::<KmeansResults>(),
        centroids: null(),
        labels: &to,
        inertia: &mut inertia,
        iterations: null_mut(),
        stopped: null_mut(),
    };
    check(ballast_kmeans_fit(plan, &data, &results, null_mut(), null_mut(), error), error);
    let found = std::ptr::read_volatile(&labels);
    assert!(found[..3].iter().all(|&each| each == found[0]) && found[3..].iter().all(|&each| each == found[3]) && found[0] != found[3]);
    assert!((std::ptr::read_volatile(&inertia) - 0.04f64).abs() < 1e-12);
    // The callback ends a fit.
    let mut done = 0i64;
    check(ballast_call_create(&mut call, error), error);
    check(ballast_call_set_on_progress(call, stop_at_once, &mut done as *mut i64 as *mut c_void, error), error);
    assert_eq!(ballast_kmeans_fit(plan, &data, &results, call, null_mut(), error), CANCELLED);
    assert_eq!(std::ptr::read_volatile(&done), 1);
    ballast_call_destroy(call);
    ballast_kmeans_plan_destroy(plan);
    ballast_options_destroy(options);
}

unsafe fn fit_a_line(error: Handle) {
    let mut a = [1.0, 0.0, 1.0, 1.0, 1.0, 2.0f64];
    let mut b = [1.0, 3.0, 5.0f64];
    let mut x = [0.0, 0.0f64];
    let (matrix, right, solution) = ([3i64, 2], [3i64], [2i64]);
    let of = tensor(&mut a, &matrix, FLOAT, 64);
    let from = tensor(&mut b, &right, FLOAT, 64);
    let to = tensor(&mut x, &solution, FLOAT, 64);
    let mut factors = null_mut();
    check(ballast_qr_factor(&of, null_mut(), null_mut(), &mut factors, null_mut(), error), error);
    check(ballast_factors_solve(factors, &from, &to, null_mut(), null_mut(), error), error);
    let solved = std::ptr::read_volatile(&x);
    assert!((solved[0] - 1.0).abs() < 1e-13 && (solved[1] - 2.0).abs() < 1e-13);
    ballast_factors_destroy(factors);
}

unsafe fn refused(error: Handle) {
    let mut options = null_mut();
    assert_eq!(ballast_options_create(text(b"dct\0"), &mut options, error), 1);
    assert!(message(error).contains("\"dct\""));
    println!("refused, as it must be: {}", message(error));
}

fn main() {
    unsafe {
        let mut error = null_mut();
        assert_eq!(ballast_error_create(&mut error), 0);
        transform(error);
        cluster(error);
        fit_a_line(error);
        refused(error);
        ballast_error_destroy(error);
    }
    println!("Ballast from Rust: works");
}
