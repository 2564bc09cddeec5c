package ingest

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"unicode"
	"unicode/utf8"
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

// checkName refuses identities that would spoil a log or a metric.
func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes || !utf8.ValidString(name) {
		return fmt.Errorf("name %.64q: expected 1 to %d bytes of UTF-8", name, maxNameBytes)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("name %.64q: expected printable characters", name)
		}
	}
	return nil
}

// identityOf is who a certificate belongs to: its first URI (as in SPIFFE), or else its
// first DNS name, or else its common name.
func identityOf(c *x509.Certificate) (string, error) {
	name := c.Subject.CommonName
	switch {
	case len(c.URIs) > 0:
		name = c.URIs[0].String()
	case len(c.DNSNames) > 0:
		name = c.DNSNames[0]
	}
	return name, checkName(name)
}
