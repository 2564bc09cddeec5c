//go:build static

package chdb

// linkable is false: loading a shared library takes the system's dynamic linker, which a program
// with the tag static avoids, so that it runs without libc.
const linkable = false

func loadCAPI(string) (*capi, error) { return nil, errStatic }
