package store

import (
	"encoding/binary"
	"errors"
)

var errColumns = errors.New("columns of a batch are cut or inconsistent")

// appendColumn encodes integers in as few bytes each as the largest needs, none if all are the
// same: the width, then one value or all of them, little-endian. Most columns of partials are
// small or constant, and every byte is checksummed, written and synced.
func appendColumn(b []byte, column []uint64) []byte {
	all, same := uint64(0), true
	for _, v := range column {
		all |= v
		same = same && v == column[0]
	}
	le := binary.LittleEndian
	switch {
	case same && len(column) > 0:
		b = le.AppendUint64(append(b, 0), column[0])
	case all < 1<<8:
		b = append(b, 1)
		for _, v := range column {
			b = append(b, byte(v))
		}
	case all < 1<<16:
		b = append(b, 2)
		for _, v := range column {
			b = le.AppendUint16(b, uint16(v))
		}
	case all < 1<<32:
		b = append(b, 4)
		for _, v := range column {
			b = le.AppendUint32(b, uint32(v))
		}
	default:
		b = append(b, 8)
		for _, v := range column {
			b = le.AppendUint64(b, v)
		}
	}
	return b
}

// takeColumn appends n decoded integers to column, and returns the rest of b.
func takeColumn(b []byte, column []uint64, n int) (rest []byte, _ []uint64, err error) {
	if len(b) == 0 {
		return nil, nil, errColumns
	}
	width := int(b[0])
	b = b[1:]
	size := width * n
	if width == 0 {
		size = 8
	}
	if len(b) < size {
		return nil, nil, errColumns
	}
	at, rest := b[:size], b[size:]
	le := binary.LittleEndian
	switch width {
	case 0:
		column = appendSame(column, le.Uint64(at), n)
	case 1:
		for _, v := range at {
			column = append(column, uint64(v))
		}
	case 2:
		for ; len(at) > 0; at = at[2:] {
			column = append(column, uint64(le.Uint16(at)))
		}
	case 4:
		for ; len(at) > 0; at = at[4:] {
			column = append(column, uint64(le.Uint32(at)))
		}
	case 8:
		for ; len(at) > 0; at = at[8:] {
			column = append(column, le.Uint64(at))
		}
	default:
		return nil, nil, errColumns
	}
	return rest, column, nil
}
