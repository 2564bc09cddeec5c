package bpf

// Ability is one requirement of counting in the kernel.
type Ability struct {
	Name string // such as "kernel"
	OK   bool   // met, or not required here
	Text string // the finding, and the remedy if it is not met
}
