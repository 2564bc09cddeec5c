package bpf

// Ability is one of the things that counting in the kernel takes.
type Ability struct {
	Name string // such as "kernel"
	OK   bool   // it is there, or not needed
	Text string // what was found, and what to do where that is not enough
}
