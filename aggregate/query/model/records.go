package model

import "time"

// Flow is one flow of a cell, in the measured direction, or what all flows that no window
// names come to.
type Flow struct {
	Others       bool        `json:"others" doc:"all flows of the cell that no window names: without addresses"`
	Src          string      `json:"src_address,omitempty"`
	SrcPort      uint16      `json:"src_port,omitempty"`
	Dst          string      `json:"dst_address,omitempty"`
	DstPort      uint16      `json:"dst_port,omitempty"`
	Proto        uint8       `json:"proto,omitempty" doc:"number of the IP protocol"`
	SrcGroup     string      `json:"src_group"`
	DstGroup     string      `json:"dst_group"`
	Kind         string      `json:"kind" enum:"tag,reflection"`
	Observations uint64      `json:"observations"`
	Bytes        uint64      `json:"bytes"`
	Mean         *Measure    `json:"mean,omitempty"`
	Min          *Measure    `json:"min,omitempty"`
	Max          *Measure    `json:"max,omitempty"`
	Heavy        uint64      `json:"heavy" doc:"heavily loaded observations"`
	HeavyRatio   float64     `json:"heavy_ratio" doc:"heavy of observations"`
	Windows      uint64      `json:"windows" doc:"that name it: in all others it is one of the others"`
	Mode         *Bottleneck `json:"mode,omitempty" doc:"the location that most heavily loaded observations name, window by window"`
}

// Flows are flows by heavily loaded observations, the most first.
type Flows struct {
	About
	WindowSeconds float64 `json:"window_s" doc:"length of the windows that name flows"`
	Total         int     `json:"total" doc:"flows on all pages"`
	Truncated     bool    `json:"truncated" doc:"there are more than that: ask for less"`
	Next          string  `json:"next_cursor,omitempty" doc:"asks for the next page of the same answer"`
	Values        []Flow  `json:"flows"`
}

// Finding is something that broke the protocol or the configuration.
type Finding struct {
	Kind     string    `json:"kind"`
	ID       string    `json:"id" doc:"what it is about: kind and id name a finding"`
	Severity string    `json:"severity" enum:"info,warning,error"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Count    uint64    `json:"count"`
	Device   string    `json:"device,omitempty"`
	Port     string    `json:"port,omitempty"`
	Location string    `json:"location,omitempty"`
	Evidence string    `json:"evidence,omitempty" doc:"for people"`
	Packets  []uint64  `json:"packets,omitempty" doc:"numbers in the capture, the first 64"`
}

// Findings are findings, the most severe and latest first.
type Findings struct {
	Source    string     `json:"source" enum:"store"`
	From      time.Time  `json:"from"`
	To        time.Time  `json:"to"`
	AsOf      *time.Time `json:"as_of,omitempty" doc:"when the store was asked: all pages are of that answer"`
	Total     int        `json:"total" doc:"findings on all pages"`
	Truncated bool       `json:"truncated" doc:"there are more than that: ask for less"`
	Next      string     `json:"next_cursor,omitempty" doc:"asks for the next page of the same answer"`
	Values    []Finding  `json:"findings"`
}
