package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a fabric file in bytes.
const maxFile = 16 << 20

// Load reads and checks the fabric file at path.
func Load(path string) (*Spec, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load fabric: %w", err)
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads and checks a fabric file of at most 16 MiB. Unknown keys are errors.
// name stands for the file in errors; those about the content are SpecErrors and
// have line numbers.
func Parse(r io.Reader, name string) (*Spec, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("read %s: larger than %d MiB", name, maxFile>>20)
	}
	s, err := decodeSpec(text, name)
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, addLines(err, text, name)
	}
	return s, nil
}

func decodeSpec(text []byte, name string) (*Spec, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	s := new(Spec)
	switch err := d.Decode(s); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("parse %s: is empty: expected a fabric with version: %d", name, SpecVersion)
	case err != nil:
		return nil, yamlError(err, name)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("parse %s: more than one YAML document: expected one", name)
	}
	return s, nil
}
