//go:build static

package chdb

// linkable is false: mapping a shared library takes the system's dynamic linker, which a
// program of the tag static does without, so that it runs where there is no libc.
const linkable = false

func loadCAPI(string) (*capi, error) { return nil, errStatic }
