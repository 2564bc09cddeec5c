package emitter

// edge is a pair of hosts of a collective operation, and its part of each step.
type edge struct {
	src, dst int
	share    int   // of its sender's rate; 0: all
	offset   int64 // from the begin of the step, ps
	burst    int64 // ps; 0: the whole burst of the workload
}

// treeEdges is an all-reduce over a binary tree of hosts in the order in which they
// are given: in the first half of the burst partial sums go up to the root, in the
// second half the result comes back down. Chunks are pipelined, so that all levels
// are busy at once. Without steps both directions are always busy.
func treeEdges(w *Workload, hosts []int) []edge {
	half := ps(w.Burst) / 2
	var edges []edge
	for i := 1; i < len(hosts); i++ {
		parent, child := hosts[(i-1)/2], hosts[i]
		edges = append(edges, edge{src: child, dst: parent, burst: half})
		edges = append(edges, edge{src: parent, dst: child, offset: half, burst: half, share: children((i-1)/2, len(hosts))})
	}
	return edges
}

// children is how many children a node of a binary tree of n nodes has.
func children(node, n int) int { return min(max(n-1-2*node, 0), 2) }

// pipelineEdges sends the activations of a step's micro-batches from each rack to
// the next one in the first half of the burst, and gradients back in the second, as
// GPipe schedules them: a stage begins one micro-batch after the stage before it.
// The i-th host of a rack talks to the i-th of the next. Micro-batches of a stage
// follow each other without a gap.
func pipelineEdges(w *Workload, hosts []int, rack func(int) int) []edge {
	var stages [][]int
	number := map[int]int{}
	for _, h := range hosts {
		n, known := number[rack(h)]
		if !known {
			n = len(stages)
			number[rack(h)] = n
			stages = append(stages, nil)
		}
		stages[n] = append(stages[n], h)
	}
	half := ps(w.Burst) / 2
	hops := len(stages) - 1
	slot := half / int64(w.MicroBatches+hops)
	var edges []edge
	for n := range hops {
		for i, h := range stages[n] {
			active := slot * int64(w.MicroBatches)
			edges = append(edges, edge{src: h, dst: stages[n+1][i], offset: slot * int64(n), burst: active})
			edges = append(edges, edge{src: stages[n+1][i], dst: h, offset: half + slot*int64(hops-1-n), burst: active})
		}
	}
	return edges
}
