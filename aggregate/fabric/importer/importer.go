package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Bounds of the input.
const (
	maxFiles       = 1 << 15
	maxTotal       = 1 << 30  // bytes of all files
	maxInventory   = 64 << 20 // of a page of NetBox
	maxDevice      = 8 << 20  // of config_db.json, and of lldpctl's output
	maxTopology    = 4 << 20  // of a containerlab topology
	maxFabricNodes = 1 << 16
	maxFabricPorts = 1 << 20
)

// File is one input. Its kind is recognised by its content.
type File struct {
	// Name is the file's name in messages, and the device's if the content names none.
	Name string
	Data []byte
	// Found is set for files in a folder: unknown kinds are skipped there.
	Found bool
}

// Read reads files, and in folders those that end in .json, .yml or .yaml.
func Read(paths []string) ([]File, error) {
	r := reader{left: maxTotal}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("import: %w", err)
		}
		if !info.IsDir() {
			err = r.add(path, false)
		} else {
			err = filepath.WalkDir(path, r.walk)
		}
		if err != nil {
			return nil, fmt.Errorf("import %s: %w", path, err)
		}
	}
	if len(r.files) == 0 {
		return nil, fmt.Errorf("import %s: no file there ends in .json, .yml or .yaml", strings.Join(paths, " "))
	}
	return r.files, nil
}

type reader struct {
	files []File
	left  int64
}

func (r *reader) walk(path string, entry fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 1:
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	case entry.Type().IsRegular() && slices.Contains([]string{".json", ".yml", ".yaml"}, filepath.Ext(path)):
		return r.add(path, true)
	}
	return nil
}

func (r *reader) add(path string, found bool) error {
	if len(r.files) == maxFiles {
		return fmt.Errorf("more than %d files", maxFiles)
	}
	data, err := readFile(path)
	if err != nil {
		return err
	}
	if r.left -= int64(len(data)); r.left < 0 {
		return fmt.Errorf("all files together are larger than %d MiB", maxTotal>>20)
	}
	r.files = append(r.files, File{Name: path, Data: data, Found: found})
	return nil
}

// readFile reads a file up to the bound, whatever its stated size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var data bytes.Buffer
	if _, err := data.ReadFrom(&boundedReader{f, maxInventory}); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data.Bytes(), nil
}

// boundedReader fails if a file is larger than the bound.
type boundedReader struct {
	f    *os.File
	left int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.f.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("larger than %d MiB", maxInventory>>20)
	}
	return n, err
}

// Options add data that no file states.
type Options struct {
	// Speed is for ports whose speed no file states, kbit/s; 0: they are reported as missing.
	Speed uint64
}

// Import makes a fabric from the files' statements. It fails for unreadable files, and for files
// that contradict each other if none of them is known to be right.
func Import(files []File, o Options) (*Result, error) {
	docs := make([]*document, len(files))
	failures := make([]error, len(files))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range files {
		g.Go(func() error {
			docs[i], failures[i] = parse(&files[i])
			return nil
		})
	}
	_ = g.Wait()
	var m merger
	var kept []*document
	for i, err := range failures {
		switch {
		case err == nil:
			kept = append(kept, docs[i])
		case files[i].Found && errors.Is(err, errUnknownKind):
			m.warnf("%s: %v: left out", files[i].Name, err)
		default:
			m.errorf("%s: %v", files[i].Name, err)
		}
	}
	if len(m.errors.lines) == 0 && len(kept) == 0 {
		m.errorf("%v in %s", errUnknownKind, filepath.Dir(files[0].Name))
	}
	if err := m.failed(); err != nil {
		return nil, err
	}
	m.merge(kept)
	if err := m.failed(); err != nil {
		return nil, err
	}
	return m.result(len(kept), o)
}

var errUnknownKind = fmt.Errorf("expected %s, %s, %s or a %s", kindSONiC, kindLLDP, kindNetBox, kindContainerlab)

// parse recognizes a file by its content and reads it.
func parse(f *File) (d *document, err error) {
	data := bytes.TrimSpace(bytes.TrimPrefix(f.Data, []byte("\ufeff")))
	switch {
	case len(data) == 0:
		return nil, errors.New("is empty")
	case data[0] == '[':
		d, err = parseNetBox(data)
	case data[0] == '{':
		d, err = parseObject(data, deviceOfFile(f.Name))
	case bytes.HasPrefix(data, []byte("topology:")) || bytes.Contains(data, []byte("\ntopology:")):
		if err = bound(data, maxTopology); err == nil {
			d, err = parseContainerlab(bytes.NewReader(data))
		}
	default:
		return nil, errUnknownKind
	}
	if err != nil {
		return nil, err
	}
	d.file = f.Name
	return d, nil
}

func bound(data []byte, most int) error {
	if len(data) > most {
		return fmt.Errorf("is larger than %d MiB", most>>20)
	}
	return nil
}

// parseObject reads a file that is one JSON object.
func parseObject(data []byte, fallback string) (*document, error) {
	top, err := topLevel(data)
	if err != nil {
		return nil, err
	}
	if list, ok := top["results"]; ok {
		return parseNetBox(list)
	}
	_, isTopology := top["topology"]
	most := maxDevice
	if isTopology {
		most = maxTopology
	}
	if err := bound(data, most); err != nil {
		return nil, err
	}
	switch {
	case isTopology:
		return parseContainerlab(bytes.NewReader(data)) // JSON is YAML
	case top["lldp"] != nil:
		return parseLLDP(top["lldp"], fallback)
	case top["DEVICE_METADATA"] != nil || top["PORT"] != nil:
		return parseSONiC(top, fallback)
	}
	return nil, errUnknownKind
}

// keysOfInterest are the keys that are read. Others are skipped.
var keysOfInterest = append([]string{
	"results", "topology", "lldp", "DEVICE_METADATA", "PORT", "PORTCHANNEL", "PORTCHANNEL_MEMBER", "VLAN", "VLAN_MEMBER",
	"LOOPBACK_INTERFACE", "DEVICE_NEIGHBOR", "DEVICE_NEIGHBOR_METADATA", "BGP_NEIGHBOR", "MUX_CABLE",
}, sonicInterfaceTables...)

// topLevel returns the values of the keys of interest. It checks the syntax of all of the file.
func topLevel(data []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, jsonAt(d, err)
	}
	top := map[string]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, jsonAt(d, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, jsonAt(d, err)
		}
		if name, _ := key.(string); slices.Contains(keysOfInterest, name) {
			top[name] = value
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, jsonAt(d, err)
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("byte %d: expected the end of the file after the JSON object", d.InputOffset())
	}
	return top, nil
}

func jsonAt(d *json.Decoder, err error) error {
	return fmt.Errorf("byte %d: %w", d.InputOffset(), plainJSON(err))
}

// plainJSON returns a JSON error without Go names.
func plainJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field != "" {
			return fmt.Errorf("%s: unexpected %s", wrong.Field, wrong.Value)
		}
		return fmt.Errorf("unexpected %s", wrong.Value)
	}
	if text := err.Error(); text == "EOF" || text == "unexpected EOF" {
		return errors.New("the file is cut off: expected more JSON")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// partsOfFileNames are words of file names that name no device.
var partsOfFileNames = []string{"config_db", "config-db", "configdb", "lldpctl", "lldpcli", "lldp", "neighbors", "neighbours"}

// deviceOfFile returns the device after which a file is named: leaf1 for leaf1.json,
// leaf1-lldp.json, config_db_leaf1.json and leaf1/config_db.json.
func deviceOfFile(path string) string {
	for range 2 {
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		for _, part := range partsOfFileNames {
			lower := strings.ToLower(name)
			if strings.HasPrefix(lower, part) {
				name = strings.TrimLeft(name[len(part):], "-_.")
			} else if strings.HasSuffix(lower, part) {
				name = strings.TrimRight(name[:len(name)-len(part)], "-_.")
			}
		}
		if name = cleanNode(name); name != "" && name != "-" {
			return name
		}
		if path = filepath.Dir(path); path == "." || path == string(filepath.Separator) {
			return ""
		}
		path += ".folder" // has no extension to remove
	}
	return ""
}
