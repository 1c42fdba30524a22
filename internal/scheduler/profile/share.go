package profile

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// maxShared bounds the results that are kept, each of one node for the pods of
// one signature. The signature that was not used for longest is dropped first.
const maxShared = 1 << 18

// sharing keeps the results of the plugins that implement framework.SignPlugin
// for each node, for later pods of the same signature:
//
//	pod ──SignPod──► signature ──► sharedResults, by NodeInfo.Slot ──► valid while NodeInfo.Generation is the same
//
// For a pod with the signature of the last pod, these plugins are asked again
// only about the node that the last pod took, and about nodes that changed. The
// other plugins are asked about every node. A decision is the same with and
// without sharing.
//
// What must not be shared is never stored:
//   - Answers that depend on other objects: plugins that read claims, volumes,
//     CSINodes, devices, DeviceClasses, images of all nodes, or pods of other
//     nodes do not sign. NodeResourcesFit does not sign pods with extended
//     resources, which DeviceClasses may provide.
//   - Answers in trials: with nominated pods added, or victims removed, every
//     filter is asked. The generations of the nodes are restored afterwards.
//   - Errors, and the answers of extenders.
//   - What PreFilter and PreScore return. They run for every pod: which nodes
//     are left and which plugins are skipped is decided anew.
//
// Arguments and feature gates of a plugin need not be signed: they are constant
// for a profile, and profiles do not share results with each other.
type sharing struct {
	signers []framework.SignPlugin
	filters []int // index in signers by position in points.filter; -1 does not sign
	scores  []int // the same for points.score
	raw     []int // position among the signing plugins with a normalizer, by position in points.score

	snapshot    *framework.Snapshot // that the results are of
	bySignature map[string]*sharedResults
	uses        uint64
	signature   []byte // reused
}

// sharedResults are the results for pods of one signature, by NodeInfo.Slot.
type sharedResults struct {
	signed   uint64 // bit i: signers[i] has signed
	lastUse  uint64
	verdicts []verdict
	ratings  []rating
	raw      []int64 // scores before normalization, of each node in turn
	stride   int
}

// verdict is the result of the signing filters for a node.
type verdict struct {
	generation uint64            // of the node
	status     *framework.Status // of the first that rejects
	position   int               // of that in points.filter
}

// rating holds the scores of the signing score plugins for a node.
type rating struct {
	generation uint64
	sum        int64 // weighted, of the plugins without a normalizer
}

// newSharing returns the sharing of a profile's plugins.
func newSharing(points *points) *sharing {
	s := &sharing{bySignature: map[string]*sharedResults{}}
	index := map[string]int{}
	signer := func(plugin framework.Plugin) int {
		signs, ok := plugin.(framework.SignPlugin)
		i, known := index[plugin.Name()]
		switch {
		case known:
			return i
		case !ok || len(s.signers) == 64:
			return -1
		}
		index[plugin.Name()] = len(s.signers)
		s.signers = append(s.signers, signs)
		return len(s.signers) - 1
	}
	for _, plugin := range points.filter {
		s.filters = append(s.filters, signer(plugin))
	}
	normalized := 0
	for _, plugin := range points.score {
		i := signer(plugin.ScorePlugin)
		s.scores, s.raw = append(s.scores, i), append(s.raw, normalized)
		if i >= 0 && plugin.normalize != nil {
			normalized++
		}
	}
	return s
}

// stride is how many raw scores a node has.
func (s *sharing) stride() int {
	normalized := 0
	for i, signer := range s.scores {
		if signer >= 0 {
			normalized = max(normalized, s.raw[i]+1)
		}
	}
	return normalized
}

// of returns the results for the pod's signature, or nil if no plugin signs it.
func (s *sharing) of(pod *framework.PodInfo, snapshot *framework.Snapshot) *sharedResults {
	if len(s.signers) == 0 {
		return nil
	}
	if s.snapshot != snapshot {
		clear(s.bySignature)
		s.snapshot = snapshot
	}
	var signed uint64
	s.signature = append(s.signature[:0], 0, 0, 0, 0, 0, 0, 0, 0)
	for i, plugin := range s.signers {
		if fragment, ok := plugin.SignPod(pod); ok {
			signed |= 1 << i
			s.signature = append(binary.AppendUvarint(s.signature, uint64(len(fragment))), fragment...)
		}
	}
	if signed == 0 {
		return nil
	}
	binary.LittleEndian.PutUint64(s.signature, signed)
	s.uses++
	r, ok := s.bySignature[string(s.signature)]
	if !ok {
		r = &sharedResults{signed: signed, stride: s.stride()}
		s.bySignature[string(s.signature)] = r
	}
	r.lastUse = s.uses
	if slots := snapshot.NumSlots(); len(r.verdicts) < slots {
		s.makeRoom(r, slots)
		r.grow(slots)
	}
	return r
}

// makeRoom drops signatures until those that are kept and the one that grows
// are within the bound.
func (s *sharing) makeRoom(growing *sharedResults, slots int) {
	for {
		total, oldest, signature := slots, growing, ""
		for key, r := range s.bySignature {
			if r == growing {
				continue
			}
			total += len(r.verdicts)
			if r.lastUse < oldest.lastUse {
				oldest, signature = r, key
			}
		}
		if total <= maxShared || oldest == growing {
			return
		}
		delete(s.bySignature, signature)
	}
}

func (r *sharedResults) grow(slots int) {
	verdicts, ratings, raw := make([]verdict, slots), make([]rating, slots), make([]int64, slots*r.stride)
	copy(verdicts, r.verdicts)
	copy(ratings, r.ratings)
	copy(raw, r.raw)
	r.verdicts, r.ratings, r.raw = verdicts, ratings, raw
}

// signs reports whether results of a plugin are shared. signer is its index in
// sharing.signers, or -1.
func (r *sharedResults) signs(signer int) bool {
	return r != nil && signer >= 0 && r.signed&(1<<signer) != 0
}

// runShared asks the filters about a node, those that sign only if the node
// has changed since.
func (c *cycle) runShared(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	v := &c.shared.verdicts[node.Slot]
	if v.generation != node.Generation {
		var rejected *framework.Status
		position, asked := c.last, 0
		for _, f := range c.filters {
			if !f.signed {
				continue
			}
			asked++
			if s := f.Filter(ctx, state, pod, node); !s.IsSuccess() {
				if !s.IsRejected() {
					return c.askFilters(ctx, state, pod, node) // an error is not kept
				}
				rejected, position = s, f.position
				break
			}
		}
		c.askedSigned[asked]++
		*v = verdict{generation: node.Generation, status: rejected, position: position}
	}
	asked := 0
	for _, f := range c.unsigned {
		if f.position > v.position {
			break
		}
		asked++
		if s := f.Filter(ctx, state, pod, node); !s.IsSuccess() {
			c.askedUnsigned[asked]++
			return s
		}
	}
	c.askedUnsigned[asked]++
	return v.status
}

// rate brings the rating of a node up to date: active are the positions of the
// score plugins that are not skipped.
func (p *Profile) rate(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, r *sharedResults, node *framework.NodeInfo, active []int) *framework.Status {
	var sum int64
	raw := r.raw[node.Slot*r.stride:]
	for _, i := range active {
		if !r.signs(p.sharing.scores[i]) {
			continue
		}
		plugin := &p.points.score[i]
		p.samples.scored[i]++
		score, s := plugin.Score(ctx, state, pod, node)
		if !s.IsSuccess() {
			return failure(s, plugin, scoreFailure)
		}
		if plugin.normalize != nil {
			raw[p.sharing.raw[i]] = score
			continue
		}
		if s := inRange(plugin, score); !s.IsSuccess() {
			return s
		}
		sum += score * plugin.weight
	}
	r.ratings[node.Slot] = rating{generation: node.Generation, sum: sum}
	return nil
}

// inRange refuses a score that no normalization can have returned.
func inRange(plugin *weightedScore, score int64) *framework.Status {
	if score >= framework.MinNodeScore && score <= framework.MaxNodeScore {
		return nil
	}
	return framework.AsStatus(plugin.Name(), fmt.Errorf("applying score defaultWeights on Score plugins: plugin %q returns an invalid score %d, it should in the range of [%d, %d] after normalizing",
		plugin.Name(), score, framework.MinNodeScore, framework.MaxNodeScore))
}
