package chdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// LibraryEnv names the environment variable that points to the engine's shared
// library, for installations that keep it elsewhere.
const LibraryEnv = "CSIGSCOPE_ENGINE"

// ErrNoEngine says that the engine's shared library was not found. Its text,
// as FindLibrary returns it, says where it was looked for and how to go on.
var ErrNoEngine = errors.New("no embedded ClickHouse engine")

// errStatic is ErrNoEngine in a program that could not load one.
var errStatic = fmt.Errorf("%w: this csigscope was built statically, without it: name a server with --store clickhouse://user@host:9000/db", ErrNoEngine)

const libraryName = "libchdb.so"

// FindLibrary returns the absolute path of the engine's shared library. A path
// that is named (explicit, or by LibraryEnv) must exist; otherwise the places
// beside the executable and in the user's data folder are tried in turn.
// A program that was built with the tag static finds none. Errors wrap ErrNoEngine.
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
		candidates = libraryPlaces(getenv, executable)
	}
	for _, path := range candidates {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		return filepath.Abs(path)
	}
	return "", fmt.Errorf(
		`find %s: %w (looked for %s): run "make engine", or name a server with --store clickhouse://user@host:9000/db`,
		libraryName, ErrNoEngine, strings.Join(candidates, ", "))
}

// libraryPlaces lists where an installation or a checkout keeps the library.
func libraryPlaces(getenv func(string) string, executable string) []string {
	var places []string
	if executable != "" {
		folder := filepath.Dir(executable)
		prefix := filepath.Dir(folder)
		places = append(places,
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
		places = append(places, filepath.Join(data, "csigscope", "engine", libraryName))
	}
	return places
}

// libraryPackage is the npm package that holds the library for this platform.
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
