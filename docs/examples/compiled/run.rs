//! Runs a compiled network as a filter: the inputs' numbers from stdin, the outputs' to stdout.
//!
//!     plait compile net-symbol.json net-0000.params --shape data=1,1,28,28 -o build
//!     make -C build
//!     rustc run.rs -L build -l net
//!     LD_LIBRARY_PATH=build ./run build/libnet.so 2 < digit.bin > scores.bin
//!
//! It is linked with one compiled network, and runs any.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::io::{Read, Write};

/// plait_array of plait.h
#[repr(C)]
struct Array {
    name: *const c_char,
    dtype: *const c_char,
    n_dims: c_int,
    shape: *const i64,
    bytes: usize,
}

extern "C" {
    fn plait_load(path: *const c_char, n_threads: c_int) -> *mut c_void;
    fn plait_free(net: *mut c_void);
    fn plait_n_inputs(net: *const c_void) -> c_int;
    fn plait_n_outputs(net: *const c_void) -> c_int;
    fn plait_input(net: *const c_void, i: c_int) -> *const Array;
    fn plait_output(net: *const c_void, i: c_int) -> *const Array;
    fn plait_run(net: *mut c_void, inputs: *const *const c_void, outputs: *const *mut c_void) -> c_int;
    fn plait_error(net: *const c_void) -> *const c_char;
}

/// An instance of a network, freed when it goes out of scope.
struct Net(*mut c_void);

impl Net {
    fn load(path: &str, threads: i32) -> Result<Net, String> {
        let path = CString::new(path).map_err(|e| e.to_string())?;
        let net = unsafe { plait_load(path.as_ptr(), threads) };
        if net.is_null() {
            return Err(error(net));
        }
        Ok(Net(net))
    }

    /// The bytes of each input and of each output.
    fn sizes(&self) -> (Vec<usize>, Vec<usize>) {
        unsafe {
            (
                (0..plait_n_inputs(self.0)).map(|i| (*plait_input(self.0, i)).bytes).collect(),
                (0..plait_n_outputs(self.0)).map(|i| (*plait_output(self.0, i)).bytes).collect(),
            )
        }
    }

    fn run(&mut self, inputs: &[Vec<u64>], outputs: &mut [Vec<u64>]) -> Result<(), String> {
        let from: Vec<*const c_void> = inputs.iter().map(|v| v.as_ptr().cast()).collect();
        let to: Vec<*mut c_void> = outputs.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
        match unsafe { plait_run(self.0, from.as_ptr(), to.as_ptr()) } {
            0 => Ok(()),
            _ => Err(error(self.0)),
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        unsafe { plait_free(self.0) }
    }
}

fn error(net: *const c_void) -> String {
    unsafe { CStr::from_ptr(plait_error(net)) }.to_string_lossy().into_owned()
}

/// Memory for so many bytes, aligned for every dtype.
fn block(bytes: usize) -> Vec<u64> {
    vec![0; bytes.div_ceil(8)]
}

fn bytes_of(block: &mut [u64], n: usize) -> &mut [u8] {
    unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr().cast(), n) }
}

fn filter(path: &str, threads: i32) -> Result<(), String> {
    let mut net = Net::load(path, threads)?;
    let (ins, outs) = net.sizes();
    let mut inputs: Vec<_> = ins.iter().map(|&n| block(n)).collect();
    let mut outputs: Vec<_> = outs.iter().map(|&n| block(n)).collect();
    for (x, &n) in inputs.iter_mut().zip(&ins) {
        std::io::stdin().read_exact(bytes_of(x, n)).map_err(|e| e.to_string())?;
    }
    net.run(&inputs, &mut outputs)?;
    for (y, &n) in outputs.iter_mut().zip(&outs) {
        std::io::stdout().write_all(bytes_of(y, n)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let done = match args.as_slice() {
        [_, path, threads] => filter(path, threads.parse().unwrap_or(0)),
        _ => Err("usage: run LIBRARY THREADS < inputs > outputs".into()),
    };
    if let Err(why) = done {
        eprintln!("run: {why}");
        std::process::exit(1);
    }
}
