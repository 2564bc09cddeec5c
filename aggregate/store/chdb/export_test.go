package chdb

// ChildPID is the process that this engine's Start has made, or 0.
func (e *Engine) ChildPID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd == nil {
		return 0
	}
	return e.cmd.Process.Pid
}

// NewDecoder undoes a content encoding.
var NewDecoder = newDecoder
