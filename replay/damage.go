package replay

import "github.com/csigscope/csigscope/capture"

// Damage counts what is left out of captures that are damaged in the middle.
type Damage struct {
	Places uint64 `json:"places"` // where records could not be read
	Bytes  uint64 `json:"bytes"`
}

// add counts what a reader that has ended left out and returns it as an error, nil
// for nothing.
func (d *Damage) add(r *capture.Reader) error {
	found := r.Damage()
	if found == nil {
		return nil
	}
	d.Places += uint64(found.Places)
	d.Bytes += uint64(found.Bytes)
	return found
}

// damage adds what a reader that has ended left out.
func (r *Result) damage(of *capture.Reader) {
	if left := r.Damaged.add(of); left != nil {
		r.Cuts = append(r.Cuts, left)
	}
}

func (d *Damage) merge(other Damage) {
	d.Places += other.Places
	d.Bytes += other.Bytes
}

// resume is capture.Options.Resume for files that are cut into chunks of this size.
func resume(chunkBytes int64) int64 {
	if chunkBytes <= 0 {
		return -1
	}
	return chunkBytes
}
