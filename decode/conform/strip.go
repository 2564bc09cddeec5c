package conform

// stripping is what a port did with the tags of packets.
type stripping struct {
	kept, removed       uint64
	firstKept, firstOff Example
}

func (s *stripping) add(before, after *sighting) {
	if after.tagged {
		s.kept++
		s.firstKept = first(s.kept, s.firstKept, before, after)
		return
	}
	s.removed++
	s.firstOff = first(s.removed, s.firstOff, before, after)
}

// judgeStripping judges each port: a port strips all tags or none.
func (j *Judge) judgeStripping() {
	for i := range j.stripping {
		s := &j.stripping[i]
		switch {
		case j.cfg.Strip == StripAlways:
			j.brokeOften(NotStripped, s.kept, s.firstKept)
		case s.removed == 0:
		case s.kept == 0 && j.cfg.Strip == StripUnknown:
			j.brokeOften(Stripped, s.removed, s.firstOff)
		case s.kept == 0 || s.kept >= s.removed:
			j.brokeOften(StrippedPartly, s.removed, s.firstOff)
		default:
			j.brokeOften(StrippedPartly, s.kept, s.firstKept)
		}
	}
}
