package report

import (
	"fmt"
	"strings"
	"time"
)

// Report is a document. Its JSON is what csigscope report -o json prints.
type Report struct {
	Title       string    `json:"title"`
	GeneratedAt time.Time `json:"generated_at"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Files       []string  `json:"files"`

	OnsetRatio float64 `json:"onset_ratio"` // share of heavy observations from which on a cell is congested, above 0 to 1
	ClearRatio float64 `json:"clear_ratio"` // share below which that ends live, at most OnsetRatio

	Verdict  *Verdict  `json:"verdict"`
	Counts   []Count   `json:"counts"`
	Signals  []Signal  `json:"signals"`
	Findings []Finding `json:"findings"`
	Coverage Coverage  `json:"coverage"`
	// Unknown is what could not be known, and why.
	Unknown []string `json:"unknown"`
}

// Count is a number of packets or observations.
type Count struct {
	Name  string `json:"name"`
	N     uint64 `json:"n"`
	About string `json:"about,omitempty"`
}

// Signal is what one signal says.
type Signal struct {
	Name      string `json:"name"`
	Unit      string `json:"unit"`
	Direction string `json:"direction"` // min: low values are tight; max: high ones
	Cells     int    `json:"cells"`
	Congested int    `json:"congested"`  // cells that were congested in the range
	NotJudged int    `json:"not_judged"` // cells that no threshold applies to

	Matrix        Matrix         `json:"matrix"`
	Distributions []Distribution `json:"distributions"` // of all cells
	Worst         []WorstCell    `json:"worst"`         // by heavy observations
	Flows         Flows          `json:"flows"`
	Locations     []Location     `json:"locations"`
	Heat          Heat           `json:"heat"`
	Rhythms       []Rhythm       `json:"rhythms"` // of the worst cells, where something repeats
}

// Matrix has sources as rows and destinations as columns: the groups with most heavy
// observations, in their own order. Cells without observations are nil.
type Matrix struct {
	Groups  []string  `json:"groups"`
	LeftOut int       `json:"left_out,omitempty"` // groups
	Cells   [][]*Cell `json:"cells"`

	domain      domain // of the left matrix
	calm, worst string // its ends
}

// Cell is one source and destination group.
type Cell struct {
	Src          string   `json:"src"`
	Dst          string   `json:"dst"`
	Kind         string   `json:"kind"`
	State        string   `json:"state"`
	Observations uint64   `json:"observations"`
	Mean         *float64 `json:"mean"` // in the signal's unit, null without a value
	MeanText     string   `json:"mean_text"`
	Heavy        uint64   `json:"heavy"`
	HeavyShare   float64  `json:"heavy_share"`
	TrimmedShare float64  `json:"trimmed_share"`
	Mode         string   `json:"mode,omitempty"`
	ModeShare    float64  `json:"mode_share,omitempty"`
	ModePorts    int      `json:"mode_ports,omitempty"` // of the location: above 1 the share is the set's
	Evidence     []string `json:"evidence,omitempty"`   // aggregate.Evidence of the mode, in words
	Candidates   []string `json:"candidates,omitempty"` // ports that may be the mode, the likeliest first
	// Probabilities are those of the candidates.
	Probabilities []float64 `json:"probabilities,omitempty"`
	RunnerUp      string    `json:"runner_up,omitempty"`

	severity float64 // of the mean: 0 is calm, 1 the worst
	color    string  // of the mode
	rank     int     // of the mode among the listed locations, from 1; 0 where it is not listed
}

// WorstCell is a cell with more about it.
type WorstCell struct {
	Cell
	Path          []Hop          `json:"path"` // empty where the topology is not known
	Distributions []Distribution `json:"distributions"`
	Load          *Load          `json:"load"` // null where it cannot be told
}

// Hop is one step of the way of a cell's packets.
type Hop struct {
	Name       string   `json:"name"`
	Ports      []string `json:"ports"` // the first of them
	Count      int      `json:"count"`
	Bottleneck bool     `json:"bottleneck"` // the mode is one of the ports
}

// Location is how often a location was named.
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

// Heat is how often locations were the bottleneck, over time. Share has a row for each
// location and a column for each step: of the step's heavy observations, those that name
// the location.
type Heat struct {
	Step      time.Duration `json:"step_ns"`
	Starts    []time.Time   `json:"starts"`
	Locations []string      `json:"locations"`
	Share     [][]float64   `json:"share"`
	Heavy     []uint64      `json:"heavy"` // of all locations, by step
	colors    []string
}

// Finding is something that is wrong.
type Finding struct {
	Severity string `json:"severity"`
	Kind     string `json:"kind"`
	Subject  string `json:"subject"`
	Device   string `json:"device,omitempty"`
	Port     string `json:"port,omitempty"`
	// Candidates are the devices, ports or senders of which one is at fault, where the
	// evidence does not choose.
	Candidates []string  `json:"candidates,omitempty"`
	From       string    `json:"from,omitempty"` // RFC 3339
	To         string    `json:"to,omitempty"`
	Count      uint64    `json:"count"`
	Of         uint64    `json:"of"`
	Evidence   string    `json:"evidence"`
	Otherwise  string    `json:"otherwise"`
	Packets    []Packets `json:"packets"` // the first ones, to open in Wireshark
}

// Packets are numbers of packets in a file, from 1.
type Packets struct {
	File    string   `json:"file"`
	Numbers []uint64 `json:"numbers"`
}

// String is the list in one line.
func (p Packets) String() string {
	return p.File + ": " + strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Numbers), " ", ", "), "[]")
}
