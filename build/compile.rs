//! Compiles the kernel, one code object per architecture. What did not change since last time is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::command::{self, Form, Invocation};
use super::compiler::{self, Compiler};
use super::failure::Failure;
use super::image::{Image, Origin};
use super::sources::{KERNEL, Sources};
use super::{files, table};

/// What is compiled, with what, to where.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The compiler.
    pub compiler: &'a Compiler,
    /// The sources.
    pub sources: &'a Sources,
    /// The folder for what is written.
    pub out: &'a Path,
}

/// What came of one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A code object.
    Compiled(Image),
    /// The compiler does not know the architecture.
    Unknown,
}

impl Job<'_> {
    /// Who makes code objects of a form.
    pub fn origin(&self, form: Form) -> Origin {
        Origin { compiler: self.compiler.version.clone(), flags: command::flags(form) }
    }

    /// Compiles for each architecture, up to `jobs` of them at once. The result is in their order.
    ///
    /// # Errors
    ///
    /// The first architecture, in this order, for which it fails.
    pub fn compile_all(&self, targets: &[String], jobs: usize) -> Result<Vec<Outcome>, Failure> {
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<Result<Outcome, Failure>>>> = targets.iter().map(|_| Mutex::new(None)).collect();
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, targets.len().max(1)) {
                scope.spawn(|| {
                    while let Some((target, result)) = {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        targets.get(number).zip(results.get(number))
                    } {
                        let outcome = self.compile(target);
                        if outcome.is_err() {
                            next.store(targets.len(), Ordering::Relaxed); // the others need not begin
                        }
                        *result.lock().expect("no thread panics with it") = Some(outcome);
                    }
                });
            }
        });
        // Those that did not begin have none; then another one has the error.
        results.into_iter().filter_map(|result| result.into_inner().expect("no thread panicked")).collect()
    }

    /// Compiles for one architecture, or keeps what was compiled before from the same sources in the same way.
    ///
    /// # Errors
    ///
    /// The compiler fails, or what it wrote is refused; then nothing is left behind.
    pub fn compile(&self, target: &str) -> Result<Outcome, Failure> {
        let (object, stamp) = (table::object_file(self.out, target), self.out.join(format!("{target}.stamp")));
        let key = self.key(target);
        if let (Ok(bytes), Ok(last)) = (fs::read(&object), fs::read_to_string(&stamp))
            && last == stamp_text(&key, &bytes)
        {
            return Image::check(target, bytes, &self.origin(Form::Bare)).map(Outcome::Compiled);
        }
        let Some(bytes) = self.run(target, Form::Bare)? else { return Ok(Outcome::Unknown) };
        let image = Image::check(target, bytes, &self.origin(Form::Bare))?;
        files::write(&object, &image.bytes)?;
        files::write(&stamp, stamp_text(&key, &image.bytes).as_bytes())?;
        Ok(Outcome::Compiled(image))
    }

    /// Runs the compiler and takes what it wrote, unchecked. `None` where it does not know the architecture.
    ///
    /// # Errors
    ///
    /// The compiler fails.
    pub fn run(&self, target: &str, form: Form) -> Result<Option<Vec<u8>>, Failure> {
        let temporary = Temporary(self.out.join(format!("{target}.unchecked")));
        let invocation =
            Invocation::compile(&self.compiler.program, &self.sources.folder, KERNEL, target, form, &temporary.0);
        let failure = |status: String, text: String| Failure::Compile {
            target: target.to_owned(),
            command: invocation.to_string(),
            status,
            advice: compiler::explain(&text),
            text,
        };
        let output = invocation.run().map_err(|error| failure(format!("it does not start: {error}"), String::new()))?;
        let text = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        if output.status.success() {
            let bytes = fs::read(&temporary.0);
            let bytes = bytes.map_err(|error| failure(format!("it succeeds and writes nothing ({error})"), text))?;
            return Ok(Some(bytes));
        }
        if compiler::is_unknown_target(&text, target) {
            Ok(None)
        } else {
            Err(failure(output.status.to_string(), text))
        }
    }

    /// What a code object depends on.
    fn key(&self, target: &str) -> String {
        let flags = command::flags(Form::Bare);
        let parts = [self.sources.sha256.as_str(), &flags, target, &self.compiler.identity()];
        files::sha256_of_parts(parts.map(str::as_bytes))
    }
}

/// Key and content of a code object that may be kept.
fn stamp_text(key: &str, object: &[u8]) -> String {
    format!("{key} {}\n", files::sha256(object))
}

/// A file that is gone in the end, whatever happens.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // often it was never written
    }
}
