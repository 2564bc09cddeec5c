package remote

// seqState is what is known of a number.
type seqState uint8

const (
	seqNew    seqState = iota
	seqBusy            // taken, and not durable yet
	seqRepeat          // durable
	seqStale           // older than what is remembered
)

// seqs remembers which of a life's last numbers were taken. The zero value has seen none.
type seqs struct {
	top        uint64
	busy, done [maxInFlightBlocks / 64]uint64 // by number modulo maxInFlightBlocks
}

// begin takes a new number; end must follow.
func (s *seqs) begin(n uint64) seqState {
	word, bit := place(n)
	switch {
	case n > s.top:
		s.advance(n)
	case s.top-n >= maxInFlightBlocks:
		return seqStale
	case s.done[word]&bit != 0:
		return seqRepeat
	case s.busy[word]&bit != 0:
		return seqBusy
	}
	s.busy[word] |= bit
	return seqNew
}

// end tells whether the number is durable now; otherwise it may be taken again.
func (s *seqs) end(n uint64, durable bool) {
	if n > s.top || s.top-n >= maxInFlightBlocks {
		return
	}
	word, bit := place(n)
	s.busy[word] &^= bit
	if durable {
		s.done[word] |= bit
	}
}

// advance forgets what the numbers up to n take the place of.
func (s *seqs) advance(n uint64) {
	if n-s.top >= maxInFlightBlocks {
		*s = seqs{}
	} else {
		for i := s.top + 1; i <= n; i++ {
			word, bit := place(i)
			s.busy[word] &^= bit
			s.done[word] &^= bit
		}
	}
	s.top = n
}

func place(n uint64) (word int, bit uint64) {
	n %= maxInFlightBlocks
	return int(n / 64), 1 << (n % 64)
}
