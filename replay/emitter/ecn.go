package emitter

// ECN codepoints (RFC 3168) that data packets have.
const (
	ecnCapable     = 2
	ecnExperienced = 3
)

// mark is what a switch's queue does to a packet that leaves so many bytes behind: up
// to ECNMin none is marked, from ECNMax on every one, and between them the more the
// longer the queue. The IETF 124 slides ("max(nQD)") compare it at the same moment.
func (s *sim) mark(k *packet, behind int64) {
	least, most := int64(s.scenario.ECNMin), int64(s.scenario.ECNMax)
	if behind <= least {
		return
	}
	if behind >= most || int64(s.marking.below(uint64(most-least))) < behind-least {
		k.ecn = ecnExperienced
	}
}
