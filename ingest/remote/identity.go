package remote

import (
	"crypto/sha256"
	"encoding/binary"
)

// Producer is the producer of an exporter's stream, as in aggregate.Source: a hash of
// who the exporter is and of the stream's name, so that rows of another identity cannot
// be written. It is cryptographic, since an exporter chooses names of streams.
func Producer(identity, stream string) uint64 {
	return producerOf("partials", identity, stream)
}

// observedProducer is the producer of observations, whose numbers are apart from those
// of blocks.
func observedProducer(identity, stream string) uint64 {
	return producerOf("observations", identity, stream)
}

func producerOf(what, identity, stream string) uint64 {
	var text []byte
	for _, s := range []string{what, identity, stream} {
		text = binary.AppendUvarint(text, uint64(len(s)))
		text = append(text, s...)
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:8])
}
