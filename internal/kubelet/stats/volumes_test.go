package stats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	events "k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/coracle-io/coracle/internal/kubelet/csi"
	"github.com/coracle-io/coracle/internal/kubelet/node"
	"github.com/coracle-io/coracle/internal/kubelet/pod"
)

func claimVolume(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// measuring returns the volumes of newProvider's pod that runs: one of a driver,
// a local one, one of a driver that does not answer until the context ends, and
// one that cannot be measured.
func measuring(t *testing.T) (*Volumes, *Provider) {
	t.Helper()
	p, _ := newProvider(t)
	web := p.Pods()[0]
	web.Pod.Spec.Volumes = append(web.Pod.Spec.Volumes, claimVolume("driven", "a"), claimVolume("local", "b"), claimVolume("hangs", "c"),
		claimVolume("fails", "d"), v1.Volume{Name: "inline", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}})
	p.Machine.(*node.Fixed).Mounts = map[string]node.FileSystem{"/disk": {Bytes: 10, Total: 100, Inodes: 1, InodesTotal: 5}}
	v := &Volumes{Pods: p.Pods, Machine: p.Machine, Usage: func(ctx context.Context, _ *v1.Pod, vol *v1.Volume) (*csi.Usage, string, error) {
		switch vol.Name {
		case "driven":
			return &csi.Usage{Bytes: &csi.Amount{Total: 1000, Used: 400, Available: 600}, Inodes: &csi.Amount{Total: 9, Used: 4, Available: 5}}, "", nil
		case "local":
			return nil, "/disk", nil
		case "hangs":
			<-ctx.Done()
			return nil, "", ctx.Err()
		case "inline":
			return &csi.Usage{Bytes: &csi.Amount{Total: 7}}, "", nil
		}
		return nil, "", errors.New("no such volume")
	}}
	p.Measured = v
	return v, p
}

// Claims and inline volumes are measured, in the summary and in the metrics.
// Volumes that cannot be measured are left out, and a driver that hangs does not
// delay other volumes.
func TestVolumesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, p := measuring(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); v.Run(ctx) }()
		synctest.Wait()
		summary, err := p.Summary(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range summary.Pods[0].VolumeStats {
			if s.CapacityBytes != nil {
				got[s.Name] = shown(&s)
			}
		}
		want := map[string]string{"cache": "60 of 100", "config": "60 of 100", "driven": "default/a 600 of 1000", "local": "default/b 10 of 100", "inline": "0 of 7"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("volumes (-want +got):\n%s", diff)
		}
		expectVolumeMetrics(t, v, map[string]float64{
			"capacity_bytes a": 1000, "available_bytes a": 600, "used_bytes a": 400, "inodes a": 9, "inodes_free a": 5, "inodes_used a": 4,
			"capacity_bytes b": 100, "available_bytes b": 10, "used_bytes b": 90, "inodes b": 5, "inodes_free b": 1, "inodes_used b": 4,
		})
		cancel()
		<-done
	})
}

// A volume is measured once a period, and a new one at the next look.
func TestVolumesAreMeasuredOnceAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, p := measuring(t)
		measure, asked := v.Usage, map[string]int{}
		v.Usage = func(ctx context.Context, pod *v1.Pod, vol *v1.Volume) (*csi.Usage, string, error) {
			if vol.Name != "hangs" {
				v.mu.Lock()
				asked[vol.Name]++
				v.mu.Unlock()
			}
			return measure(ctx, pod, vol)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); v.Run(ctx) }()
		synctest.Wait()
		v.mu.Lock()
		web := p.Pods()[0].Pod
		web.Spec.Volumes = append(web.Spec.Volumes, claimVolume("new", "e"))
		v.mu.Unlock()
		time.Sleep(volumePeriod + time.Second)
		cancel()
		<-done
		if diff := cmp.Diff(map[string]int{"driven": 2, "local": 2, "fails": 2, "inline": 2, "new": 1}, asked); diff != "" {
			t.Errorf("measured (-want +got):\n%s", diff)
		}
	})
}

// The health of a volume is a metric, and an event when it changes for the worse.
func TestHealthOfVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := measuring(t)
		recorder := events.NewFakeRecorder(10)
		v.Recorder = recorder
		health := csi.Health{}
		v.Usage = func(_ context.Context, _ *v1.Pod, vol *v1.Volume) (*csi.Usage, string, error) {
			if vol.Name != "driven" {
				return nil, "", csi.ErrNoUsage
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			return &csi.Usage{Health: new(health)}, "", errors.New("no such disk")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); v.Run(ctx) }()
		synctest.Wait()
		expectVolumeMetrics(t, v, map[string]float64{"health_status_abnormal a": 0})
		v.mu.Lock()
		health = csi.Health{Abnormal: true, Message: "Gone"}
		v.mu.Unlock()
		time.Sleep(3*volumePeriod + time.Second)
		expectVolumeMetrics(t, v, map[string]float64{"health_status_abnormal a": 1})
		cancel()
		<-done
		close(recorder.Events)
		var got []string
		for e := range recorder.Events {
			got = append(got, e)
		}
		if diff := cmp.Diff([]string{"Warning VolumeConditionAbnormal Volume driven: Gone"}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// Volumes of pods that are gone are forgotten.
func TestVolumesOfGonePodsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, p := measuring(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); v.Run(ctx) }()
		synctest.Wait()
		v.mu.Lock()
		v.Pods = func() []pod.Observed { return nil }
		v.mu.Unlock()
		time.Sleep(volumeLook)
		synctest.Wait()
		if left := v.of(p.Pods()[0].Pod); len(left) > 0 {
			t.Errorf("still measured are %+v", left)
		}
		cancel()
		<-done
	})
}

func shown(s *statsapi.VolumeStats) string {
	text := ""
	if s.PVCRef != nil {
		text = s.PVCRef.Namespace + "/" + s.PVCRef.Name + " "
	}
	return text + fmt.Sprint(*s.AvailableBytes, " of ", *s.CapacityBytes)
}

// expectVolumeMetrics compares the metrics, by the end of their name and the claim.
func expectVolumeMetrics(t *testing.T, v *Volumes, want map[string]float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(v)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[strings.TrimPrefix(f.GetName(), "kubelet_volume_stats_")+" "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// hung is a machine with a file system that does not answer.
type hung struct {
	node.Machine
	asked, answer chan struct{}
}

func (h *hung) FileSystem(string) (node.FileSystem, error) {
	close(h.asked)
	<-h.answer
	return node.FileSystem{}, nil
}

// The kubelet stops while a file system does not answer.
func TestStopWhileAFileSystemHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, p := measuring(t)
		web := p.Pods()[0].Pod
		web.Spec.Volumes = []v1.Volume{claimVolume("local", "b")}
		h := &hung{v.Machine, make(chan struct{}), make(chan struct{})}
		defer close(h.answer)
		v.Machine = h
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); v.Run(ctx) }()
		<-h.asked
		cancel()
		<-stopped // deadlocks if Run waits for the file system
	})
}
