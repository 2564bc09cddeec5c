package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/capture"
)

// output is the result of a command, in the format of -o, to standard output or to the file of
// --out.
type output struct {
	outputFile
	format  string
	formats []string // the first one is the default
}

// add adds both flags, which are validated before the command runs.
func (o *output) add(cmd *cobra.Command, formats ...string) {
	o.addFormat(cmd, formats...)
	o.outputFile.add(cmd, "out", "`FILE` to write, - for standard output (the default)")
}

// addFormat adds only the format, for commands that print without end.
func (o *output) addFormat(cmd *cobra.Command, formats ...string) {
	o.formats = formats
	cmd.Flags().StringVarP(&o.format, "output", "o", formats[0], "output `FORMAT`: "+o.known())
	before(cmd, func([]string) error {
		if !slices.Contains(formats, o.format) {
			return fmt.Errorf("--output %q: expected %s", o.format, o.known())
		}
		return nil
	})
}

// known lists the formats in words.
func (o *output) known() string {
	last := len(o.formats) - 1
	return strings.Join(o.formats[:last], ", ") + " or " + o.formats[last]
}

// list writes a listing.
func (o *output) list(cmd *cobra.Command, t *tabular.Listing) error {
	return o.write(cmd, func(w io.Writer) error { return t.Write(w, o.format) })
}

// json writes a value as JSON if that is the format, and calls otherwise if not.
func (o *output) json(cmd *cobra.Command, v any, otherwise func(io.Writer) error) error {
	if o.format != "json" {
		return o.write(cmd, otherwise)
	}
	return o.write(cmd, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		return nil
	})
}

// before adds a check that runs before the command. Its errors are usage errors.
func before(cmd *cobra.Command, check func(args []string) error) {
	first := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if first != nil {
			if err := first(cmd, args); err != nil {
				return err
			}
		}
		if err := check(args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// outputFile is a file that a command writes, "" or - for standard output.
type outputFile struct {
	flag, path string
	// rotating forbids an output file in a folder among the arguments, whose captures are read
	// as they appear.
	rotating bool
}

// add adds the flag. Before the command runs, it rejects a file whose folder is missing, or
// that would overwrite a file that the command reads.
func (f *outputFile) add(cmd *cobra.Command, name, usage string) {
	f.flag = "--" + name
	cmd.Flags().StringVar(&f.path, name, "", usage)
	before(cmd, func(args []string) error {
		if f.named() {
			return errors.Join(f.checkFolder(), f.spare(args), f.spareSettings(cmd.Flags()))
		}
		return nil
	})
}

func (f *outputFile) named() bool { return f.path != "" && f.path != "-" }

// checkFolder returns an error if the file cannot be made in its folder, so that minutes of work
// are not lost at the end.
func (f *outputFile) checkFolder() error {
	folder := filepath.Dir(f.path)
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("%s %q: %w", f.flag, f.path, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s %q: %s is no folder", f.flag, f.path, folder)
	}
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return fmt.Errorf("%s %q: is a folder, expected a file", f.flag, f.path)
		}
		return nil
	}
	_, part := f.place()
	err = writeTo(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600, func(io.Writer) error { return nil })
	if err == nil {
		err = os.Remove(part)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", f.flag, f.path, withoutPath(err, part))
	}
	return nil
}

// place returns the path of the file, behind links, and of the file beside it that replaces it
// when it is complete.
func (f *outputFile) place() (path, part string) {
	path = f.path
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return path, filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+strconv.Itoa(os.Getpid()))
}

// spare returns an error if the file is one of the captures, or one in a folder of captures.
func (f *outputFile) spare(args []string) error {
	out, err := os.Stat(f.path)
	folder, folderErr := os.Stat(filepath.Dir(f.path))
	for _, name := range f.captures(args) {
		in, inErr := os.Stat(name)
		switch {
		case inErr != nil: // the reader of the capture reports it
		case err == nil && os.SameFile(in, out):
			return fmt.Errorf("%s %q: is one of the captures to read: name another file", f.flag, f.path)
		case f.rotating && folderErr == nil && os.SameFile(in, folder):
			return fmt.Errorf("%s %q: lies in the folder that is read: name another one", f.flag, f.path)
		}
	}
	return nil
}

// spareSettings returns an error if the file is a fabric file, configuration or scenario that a
// flag names.
func (f *outputFile) spareSettings(flags *pflag.FlagSet) error {
	for _, name := range []string{"fabric", "config", "scenario-file"} {
		if in := flags.Lookup(name); in != nil && sameFile(in.Value.String(), f.path) {
			return fmt.Errorf("%s %q: is the file of --%s: name another file", f.flag, f.path, name)
		}
	}
	return nil
}

// sameFile reports whether two paths name one existing file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// captures returns the captures in the arguments, also as PORT=FILE, and those in folders.
func (f *outputFile) captures(args []string) []string {
	list := slices.Clone(args)
	for _, arg := range args {
		if _, file, named := strings.Cut(arg, "="); named {
			list = append(list, file)
		}
		if info, err := os.Stat(arg); err == nil && info.IsDir() {
			found, _, _ := capture.Files(arg) // the reader of the folder reports errors
			list = append(list, found...)
		}
	}
	return list
}

// write writes the file or standard output. It replaces an earlier file only when the new one
// is complete.
func (f *outputFile) write(cmd *cobra.Command, write func(io.Writer) error) error {
	if !f.named() {
		return write(cmd.OutOrStdout())
	}
	path, part := f.place()
	mode := os.FileMode(0o666)
	if info, err := os.Stat(path); err == nil {
		if mode = info.Mode().Perm(); !info.Mode().IsRegular() {
			return writeTo(path, os.O_WRONLY, mode, write) // a pipe or a device is not replaced
		}
	}
	err := writeTo(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode, write)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
		return fmt.Errorf("%s %q: %w", f.flag, f.path, withoutPath(err, part))
	}
	return nil
}

// withoutPath returns the cause of an error about a file that the user did not name.
func withoutPath(err error, path string) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok && e.Path == path {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok && e.Old == path {
		return e.Err
	}
	return err
}

func writeTo(path string, flags int, mode os.FileMode, write func(io.Writer) error) error {
	out, err := os.OpenFile(path, flags, mode)
	if err != nil {
		return err
	}
	return errors.Join(write(out), out.Close())
}

// progressInterval is the interval at which a progress bar is drawn.
const progressInterval = 100 * time.Millisecond

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// showProgress draws a bar on standard error until the returned function is called; poll
// returns the completed part of total and a note for the bar. A positive total is in bytes;
// with 0, done is in thousandths. It draws nothing if standard error is not a terminal.
func showProgress(cmd *cobra.Command, total int64, poll func() (done int64, note string)) (stop func()) {
	w := cmd.ErrOrStderr()
	if !isTerminal(w) {
		return func() {}
	}
	bytes := total > 0
	if !bytes {
		total = 1000
	}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(progressInterval/2),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
	)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.Tick(progressInterval)
		for {
			at, note := poll()
			bar.Describe(note)
			_ = bar.Set64(min(at, total))
			select {
			case <-quit:
				_ = bar.Clear()
				return
			case <-tick:
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
