package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Events are kept exactly as long as a pod in flight misses them, in whatever
// order flights end.
func TestFlightsKeepWhatIsMissed(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		f := newFlights()
		missed := map[types.UID]int{} // how many events each pod in flight misses
		for step := range 300 {
			switch uid := types.UID(fmt.Sprint(r.IntN(20))); {
			case r.IntN(3) == 0:
				f.record(recorded{})
				for one := range missed {
					missed[one]++
				}
			case f.has(uid):
				f.remove(uid)
				delete(missed, uid)
			default:
				f.add(&QueuedPodInfo{PodInfo: framework.NewPodInfo(pod(string(uid), 0))})
				missed[uid] = 0
			}
			events := 0
			for uid, want := range missed {
				events = max(events, want)
				if got, _ := f.missed(uid); len(got) != want {
					t.Fatalf("seed %d, step %d: pod %s misses %d events, want %d", seed, step, uid, len(got), want)
				}
			}
			if len(f.events) != events {
				t.Fatalf("seed %d, step %d: %d events are kept, want %d", seed, step, len(f.events), events)
			}
		}
	}
}

// The end of a flight does not look at all others.
func BenchmarkEndFlights(b *testing.B) {
	const size = 10_000
	pods := make([]*QueuedPodInfo, size)
	for i := range pods {
		pods[i] = &QueuedPodInfo{PodInfo: framework.NewPodInfo(pod(fmt.Sprint(i), 0))}
	}
	for b.Loop() {
		f := newFlights()
		for _, it := range pods {
			f.add(it)
		}
		for _, it := range pods {
			f.remove(it.Pod.UID)
		}
	}
}
