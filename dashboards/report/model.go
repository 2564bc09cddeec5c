package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Report is the document. csigscope report -o json prints it as JSON.
type Report struct {
	Title       string    `json:"title"`
	GeneratedAt time.Time `json:"generated_at"`
	From        time.Time `json:"from,omitzero"` // left out, as To, if no packet has a time
	To          time.Time `json:"to,omitzero"`
	Files       []string  `json:"files"`

	OnsetRatio float64 `json:"onset_ratio"` // a cell becomes congested from this share of heavy observations on, above 0 to 1
	ClearRatio float64 `json:"clear_ratio"` // congestion ends below this share, at most OnsetRatio

	Verdict  *Verdict  `json:"verdict"`
	Counts   []Count   `json:"counts"`
	Signals  []Signal  `json:"signals"`
	Findings []Finding `json:"findings"`
	Coverage Coverage  `json:"coverage"`
	// Unknown lists gaps in knowledge with their reasons.
	Unknown []string `json:"unknown"`
}

// Count is a number of packets or observations.
type Count struct {
	Name  string `json:"name"`
	N     uint64 `json:"n"`
	About string `json:"about,omitempty"`
}

// Signal is the report's part on one signal.
type Signal struct {
	signal csig.Signal

	Name      string `json:"name"`
	Unit      string `json:"unit"`
	Direction string `json:"direction"` // min: low values are tight; max: high ones
	Cells     int    `json:"cells"`
	Congested int    `json:"congested"`  // cells that were congested at some time
	NotJudged int    `json:"not_judged"` // cells without an applicable threshold

	Matrix        Matrix         `json:"matrix"`
	Distributions []Distribution `json:"distributions"` // all cells together
	Worst         []WorstCell    `json:"worst"`         // most heavy observations first
	Flows         Flows          `json:"flows"`
	Locations     []Location     `json:"locations"`
	Heat          Heat           `json:"heat"`
	Rhythms       []Periodicity  `json:"rhythms"` // periods of the worst cells
}

// Matrix has sources as rows and destinations as columns: the groups with most heavy observations,
// in natural order. Cells without observations are nil.
type Matrix struct {
	Groups  []string  `json:"groups"`
	LeftOut int       `json:"left_out,omitempty"` // number of groups left out
	Cells   [][]*Cell `json:"cells"`

	calm, worst string // labels of the ends of the left matrix' ramp
}

// Cell is a pair of source and destination group.
type Cell struct {
	Src          string   `json:"src"`
	Dst          string   `json:"dst"`
	Kind         string   `json:"kind"`
	State        string   `json:"state"`
	Observations uint64   `json:"observations"`
	Mean         *float64 `json:"mean"` // in the signal's unit, null if there is none
	MeanText     string   `json:"mean_text"`
	Heavy        uint64   `json:"heavy"`
	HeavyShare   float64  `json:"heavy_share"`
	TrimmedShare float64  `json:"trimmed_share"`
	Mode         string   `json:"mode,omitempty"`
	ModeShare    float64  `json:"mode_share,omitempty"`
	ModePorts    int      `json:"mode_ports,omitempty"` // ports of the location: above 1 the share belongs to the whole set
	Evidence     []string `json:"evidence,omitempty"`   // aggregate.Evidence for the mode, in words
	Candidates   []string `json:"candidates,omitempty"` // ports that may be the mode, most likely first
	// Probabilities belong to the candidates.
	Probabilities []float64 `json:"probabilities,omitempty"`
	RunnerUp      string    `json:"runner_up,omitempty"`

	severity float64 // of the mean: 0 is calm, 1 is worst
	state    string  // in words, and whether the cell was congested earlier
	color    string  // of the mode
	rank     int     // of the mode in the list of locations, from 1; 0 if it is not listed
}

// WorstCell is a cell with details.
type WorstCell struct {
	Cell
	Path          []Hop          `json:"path"` // empty if the topology is unknown
	Distributions []Distribution `json:"distributions"`
	Load          *Load          `json:"load"` // null if it cannot be determined
}

// StateText returns the cell's state in words, or that it was congested earlier.
func (c *WorstCell) StateText() string { return c.state }

// Hop is one step on the path of a cell's packets.
type Hop struct {
	Name       string   `json:"name"`
	Ports      []string `json:"ports"` // the first few of them
	Count      int      `json:"count"`
	Bottleneck bool     `json:"bottleneck"` // one of the ports is the mode
}

// Location counts how often observations named a location.
type Location struct {
	Name         string `json:"name"`
	Kind         string `json:"kind"`
	Ports        int    `json:"ports"`
	Observations uint64 `json:"observations"`
	Heavy        uint64 `json:"heavy"`
	Cells        int    `json:"cells"`
	HeavyMean    string `json:"heavy_mean,omitempty"`
	Color        string `json:"color"`
}

// KnownPorts is the number of ports in words, which is empty if the ports of a locator are not known.
func (l *Location) KnownPorts() string {
	if l.Ports == 0 {
		return ""
	}
	return strconv.Itoa(l.Ports)
}

// Heat shows how often locations were the bottleneck over time. Share has a row for each location
// and a column for each step: the share of the step's heavy observations that name the location.
type Heat struct {
	Step      time.Duration `json:"step_ns"`
	Starts    []time.Time   `json:"starts"`
	Locations []string      `json:"locations"`
	Share     [][]float64   `json:"share"`
	Heavy     []uint64      `json:"heavy"` // by step, over all locations
	colors    []string
}

// Finding is a fault.
type Finding struct {
	Severity string `json:"severity"`
	Kind     string `json:"kind"`
	Subject  string `json:"subject"`
	Device   string `json:"device,omitempty"`
	Port     string `json:"port,omitempty"`
	// Candidates lists the devices, ports or senders one of which is at fault, if the evidence
	// cannot decide.
	Candidates []string  `json:"candidates,omitempty"`
	From       string    `json:"from,omitempty"` // RFC 3339; left out, as To, if no packet has a time
	To         string    `json:"to,omitempty"`
	Count      uint64    `json:"count"`
	Of         uint64    `json:"of"`
	Unit       string    `json:"unit"` // of both
	Evidence   string    `json:"evidence"`
	Otherwise  string    `json:"otherwise"`
	Packets    []Packets `json:"packets"` // the first few, to open in Wireshark
}

// Packets lists packet numbers of a file, from 1.
type Packets struct {
	File    string   `json:"file"`
	Numbers []uint64 `json:"numbers"`
}

// String returns the list in one line.
func (p Packets) String() string {
	return p.File + ": " + strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Numbers), " ", ", "), "[]")
}
