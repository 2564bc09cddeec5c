package emitter

// wire sends frames instead of writing them to files.
type wire struct {
	frame []byte
	send  func(frame []byte) error
	wait  func(ns int64) error // until the time of a frame, Unix ns of the simulation
}

// packet sends a frame as a tap sees it, whole.
func (w *wire) packet(t *tap, f *framer, s *segment, ns int64) error {
	if err := w.wait(ns); err != nil {
		return err
	}
	w.frame = w.frame[:0]
	if t.mirror != nil {
		w.frame = t.mirror.append(w.frame, s, ns)
	}
	w.frame = f.append(w.frame, s, s.length)
	return w.send(w.frame)
}
