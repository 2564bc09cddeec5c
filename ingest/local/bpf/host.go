package bpf

// Requirement is one requirement of counting in the kernel.
type Requirement struct {
	Name string // such as "kernel"
	OK   bool   // it is met, or this host does not need it
	Text string // one line for people: what was found, and the remedy if it is not met
}
