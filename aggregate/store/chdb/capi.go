package chdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"
)

// capi holds the entry points of the engine's C interface. Its handles point to memory of the
// engine, never of Go. One connection runs one statement at a time; entry points of different
// connections are safe to call concurrently.
type capi struct {
	setSignalHandlers func(enabled int32)
	connect           func(argc int32, argv unsafe.Pointer) unsafe.Pointer
	closeConn         func(conn unsafe.Pointer)
	queryParams       func(conn, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) unsafe.Pointer
	streamParams      func(conn, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values, valueLens unsafe.Pointer, count uintptr) unsafe.Pointer
	streamFetch       func(conn, stream unsafe.Pointer) unsafe.Pointer
	streamCancel      func(conn, stream unsafe.Pointer)
	classify          func(conn, sql unsafe.Pointer, sqlLen uintptr, database unsafe.Pointer, databaseLen uintptr, out unsafe.Pointer) int32

	insertStart   func(conn, sql unsafe.Pointer, sqlLen uintptr, format unsafe.Pointer, formatLen uintptr) unsafe.Pointer
	insertAppend  func(insert, data unsafe.Pointer, length uintptr) int32
	insertDone    func(insert unsafe.Pointer) unsafe.Pointer
	insertCancel  func(insert unsafe.Pointer)
	insertError   func(insert unsafe.Pointer) string
	insertDestroy func(insert unsafe.Pointer)

	resultBuffer  func(result unsafe.Pointer) unsafe.Pointer
	resultLength  func(result unsafe.Pointer) uintptr
	resultError   func(result unsafe.Pointer) string
	resultDestroy func(result unsafe.Pointer)

	resultRows       func(result unsafe.Pointer) uint64
	resultBytes      func(result unsafe.Pointer) uint64
	resultTableRows  func(result unsafe.Pointer) uint64
	resultTableBytes func(result unsafe.Pointer) uint64
	resultElapsed    func(result unsafe.Pointer) float64
}

// open opens an engine connection. The first one of the process boots the engine with the
// process-wide arguments.
func (a *capi) open(args []string) unsafe.Pointer {
	var pins cStrings
	defer pins.unpin()
	argv := pins.pointers(args)
	return a.connect(int32(len(args)), argv)
}

// result copies nothing: bytes is memory of the engine, valid until destroy.
func (a *capi) result(handle unsafe.Pointer) (bytes []byte, err error) {
	if handle == nil {
		return nil, newException(codeUnknown, "the engine returned no result")
	}
	if text := a.resultError(handle); text != "" {
		return nil, parseException(text)
	}
	length := a.resultLength(handle)
	if length == 0 {
		return nil, nil
	}
	return unsafe.Slice((*byte)(a.resultBuffer(handle)), length), nil
}

// cStrings pins Go memory for the length of one call into the engine.
type cStrings struct{ pinner runtime.Pinner }

func (c *cStrings) unpin() { c.pinner.Unpin() }

// bytes returns a pointer to text followed by a zero byte.
func (c *cStrings) bytes(text string) unsafe.Pointer {
	terminated := append([]byte(text), 0)
	c.pinner.Pin(&terminated[0])
	return unsafe.Pointer(&terminated[0])
}

// pointers returns a C array of pointers to texts, ended by a null pointer.
func (c *cStrings) pointers(texts []string) unsafe.Pointer {
	array := make([]unsafe.Pointer, len(texts)+1)
	for i, text := range texts {
		array[i] = c.bytes(text)
	}
	c.pinner.Pin(&array[0])
	return unsafe.Pointer(&array[0])
}

// lengths returns a C array of the lengths of texts.
func (c *cStrings) lengths(texts []string) unsafe.Pointer {
	array := make([]uintptr, len(texts)+1)
	for i, text := range texts {
		array[i] = uintptr(len(text))
	}
	c.pinner.Pin(&array[0])
	return unsafe.Pointer(&array[0])
}

// LibraryEnv names the environment variable that points to the engine's shared library, for
// installations that keep it elsewhere.
const LibraryEnv = "CSIGSCOPE_ENGINE"

// ErrNoEngine reports that the engine's shared library was not found. The text from FindLibrary
// lists the paths searched and the next steps.
var ErrNoEngine = errors.New("no embedded ClickHouse engine")

// errStatic is ErrNoEngine in a program that cannot load a library.
var errStatic = fmt.Errorf("%w: this csigscope was built statically, without it: name a server with --store clickhouse://user@host:9000/db", ErrNoEngine)

const libraryName = "libchdb.so"

// FindLibrary returns the absolute path of the engine's shared library. A path given by explicit
// or LibraryEnv must exist; otherwise FindLibrary tries the paths beside the executable and in
// the user's data folder in turn. A program built with the tag static finds none. Errors wrap
// ErrNoEngine.
func FindLibrary(explicit string) (string, error) {
	if !linkable {
		return "", errStatic
	}
	executable, err := os.Executable()
	if err != nil {
		executable = ""
	} else if resolved, err := filepath.EvalSymlinks(executable); err == nil {
		executable = resolved
	}
	return findLibrary(explicit, os.Getenv, executable)
}

func findLibrary(explicit string, getenv func(string) string, executable string) (string, error) {
	if explicit == "" {
		explicit = getenv(LibraryEnv)
	}
	candidates := []string{explicit}
	if explicit == "" {
		candidates = libraryPaths(getenv, executable)
	}
	for _, path := range candidates {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		return filepath.Abs(path)
	}
	return "", fmt.Errorf(
		`find %s: %w (looked for %s): set %s to the file, run "make engine" in a checkout, or name a server with --store clickhouse://user@host:9000/db`,
		libraryName, ErrNoEngine, strings.Join(candidates, ", "), LibraryEnv)
}

// libraryPaths lists where an installation or a checkout keeps the library.
func libraryPaths(getenv func(string) string, executable string) []string {
	var paths []string
	if executable != "" {
		folder := filepath.Dir(executable)
		prefix := filepath.Dir(folder)
		paths = append(paths,
			filepath.Join(folder, libraryName),
			filepath.Join(prefix, "lib", "csigscope", libraryName),
			filepath.Join(prefix, "aggregate", "store", "chdb", "node_modules", libraryPackage(), libraryName))
	}
	data := getenv("XDG_DATA_HOME")
	if data == "" {
		if home := getenv("HOME"); home != "" {
			data = filepath.Join(home, ".local", "share")
		}
	}
	if data != "" {
		paths = append(paths, filepath.Join(data, "csigscope", "engine", libraryName))
	}
	return paths
}

// libraryPackage is the npm package with the library for this platform.
func libraryPackage() string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	name := "lib-" + runtime.GOOS + "-" + arch
	if runtime.GOOS == "linux" {
		name += "-gnu"
	}
	return filepath.Join("@chdb", name)
}
