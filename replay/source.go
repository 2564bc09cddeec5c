package replay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
)

// pipelineVersion changes whenever the same file under the same settings would
// give other rows, so that old and new rows are distinguished and never add up.
const pipelineVersion = 13

// source is one capture file: a producer identified by its content and, without packets, by its tap.
type source struct {
	path   string
	size   int64
	id     aggregate.Source
	chunks []capture.Chunk
	idle   bool // the file has no packets
	// witness means that the file begins with interfaces of mid-fabric taps, which show the paths
	// of flows.
	witness bool
}

// inPieces reports whether the file is read in several chunks.
func (s *source) inPieces() bool { return len(s.chunks) > 1 }

func openSource(path string, cfg *Config) (*source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open capture: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open capture %q: expected a file, a folder of captures, or a pipe", path)
	}
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		return nil, err
	}
	var batch capture.Batch
	idle := errors.Is(r.ReadBatch(&batch), io.EOF) // other errors in the file are reported when it is replayed
	interfaces := r.Interfaces()
	r.Close()
	content, err := contentID(path, info.Size())
	if err != nil {
		return nil, err
	}
	chunkBytes := cfg.ChunkBytes
	if chunkBytes < 0 {
		chunkBytes = max(info.Size(), 1)
	}
	s := &source{path: path, size: info.Size(), idle: idle}
	if s.chunks, err = capture.Chunks(path, chunkBytes); err != nil {
		return nil, err
	}
	tap := s.fileTap(interfaces)
	if idle && tap != "" {
		content = xxhash.Sum64String(fmt.Sprint(content, tap)) // all classic captures without packets are the same bytes
	}
	s.witness = cfg.hasWays() && cfg.isWitness(s.firstTaps(interfaces))
	s.id = aggregate.Source{Producer: content, Incarnation: settingsID(cfg, chunkBytes, tap), Epoch: cfg.Epoch}
	return s, nil
}

// fileTap returns the name of a tap that comes from the file's name, if the capture begins with an
// interface without one. Under another name the file then has rows of another tap.
func (s *source) fileTap(interfaces []capture.Interface) string {
	if len(interfaces) > 0 && !slices.ContainsFunc(interfaces, func(i capture.Interface) bool { return i.Name == "" }) {
		return ""
	}
	return s.tapName(nil, 0)
}

// hasWays reports whether rows use evidence of paths, which mid-fabric taps may add to.
func (cfg *Config) hasWays() bool {
	finder, ok := cfg.Resolver.(aggregate.PathResolver)
	return ok && finder.HasWays() && cfg.Tap != nil
}

// isWitness reports whether one of the taps is in the middle of the fabric.
func (cfg *Config) isWitness(taps []string) bool {
	return slices.ContainsFunc(taps, func(name string) bool { return cfg.Tap(name).ObservationPoint != 0 })
}

// firstTaps returns the names of the taps with which a capture begins.
func (s *source) firstTaps(interfaces []capture.Interface) (names []string) {
	for i := range max(len(interfaces), 1) {
		names = append(names, s.tapName(interfaces, uint32(i)))
	}
	return names
}

// Samples of a file for its identity.
const (
	sampleCount = 64
	sampleBytes = 16 << 10
)

// contentID identifies a file by its size, its first and last bytes, and evenly spaced samples,
// since reading every byte would cost as much as a replay. Captures with equal IDs agree in all of
// those: copies do, different recordings do not, since every record has its time.
func contentID(path string, size int64) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open capture: %w", err)
	}
	defer f.Close()
	h := xxhash.New()
	var sizeBytes [8]byte
	binary.LittleEndian.PutUint64(sizeBytes[:], uint64(size))
	_, _ = h.Write(sizeBytes[:])
	buf := make([]byte, sampleBytes)
	for i := range int64(sampleCount) {
		at := max(size-sampleBytes, 0) / (sampleCount - 1) * i
		if i == sampleCount-1 {
			at = max(size-sampleBytes, 0)
		}
		n, err := f.ReadAt(buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read capture: %w", err)
		}
		_, _ = h.Write(buf[:n])
		if size <= sampleBytes {
			break
		}
	}
	return h.Sum64(), nil
}

// settingsID identifies the settings that determine a file's rows, apart from the configuration
// epoch. tap is the one that the file's name selects, if any.
func settingsID(cfg *Config, chunkBytes int64, tap string) uint64 {
	h := xxhash.New()
	fmt.Fprintf(h, "pipeline %d resolutions %v fine-heavy %v keys %d flows %v untouched %v repeat %v chunk %d taps %s",
		pipelineVersion, cfg.Resolutions, cfg.FineHeavyOnly, cfg.MaxSeries, cfg.Flows, cfg.LocateUntouched, cfg.UDPRepeat, chunkBytes, cfg.TapSettings)
	if tap != "" {
		fmt.Fprintf(h, " file %q", tap)
	}
	if cfg.Dedup > 0 {
		fmt.Fprintf(h, " dedup %s", cfg.Dedup)
	}
	if cfg.Finding != nil {
		fmt.Fprintf(h, " findings %d of senders %v", finding.Version, cfg.Finding.Senders)
	}
	return h.Sum64()
}

// tapName returns the tap's name for a capture interface.
func (s *source) tapName(interfaces []capture.Interface, index uint32) string {
	if int(index) < len(interfaces) && interfaces[index].Name != "" {
		return interfaces[index].Name
	}
	base := filepath.Base(s.path)
	for _, compressed := range []string{".gz", ".zst"} {
		base = strings.TrimSuffix(base, compressed)
	}
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// resume returns capture.Options.Resume for files with chunks of this size.
func resume(chunkBytes int64) int64 {
	if chunkBytes <= 0 {
		return -1
	}
	return chunkBytes
}
