package remote

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
)

// unfinished is the suffix of a file that writeFile has not renamed yet.
const unfinished = ".new"

// writeFile replaces a file durably and atomically. A crash may leave an unfinished one.
func writeFile(name string, data []byte) error {
	temp := name + unfinished
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Producer returns the producer of an exporter's stream, as in aggregate.Source: a hash of the
// exporter's identity and the stream's name, so that a client cannot write rows of another
// identity. It is cryptographic because exporters choose stream names.
func Producer(identity, stream string) uint64 {
	return producerOf("partials", identity, stream)
}

// observedProducer returns the producer of a stream's observations, whose numbers are
// independent of those of blocks.
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
