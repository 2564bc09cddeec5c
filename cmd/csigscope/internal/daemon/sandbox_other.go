//go:build !linux

package daemon

func restrict(Folders) error { return errNoSandbox }
