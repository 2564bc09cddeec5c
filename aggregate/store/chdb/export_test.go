package chdb

// ChildPID is the process started by this engine's Start, or 0.
func (e *Engine) ChildPID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cmd == nil {
		return 0
	}
	return e.cmd.Process.Pid
}

// NewDecoder removes a content encoding.
var NewDecoder = newDecoder
