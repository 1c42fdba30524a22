package csi

import (
	"context"
	"errors"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
)

// The driver of a volume is asked what the volume uses, if it can say that.
func TestUsage(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	if _, err := v.Usage(t.Context(), podUID, "pv1"); !errors.Is(err, ErrNoUsage) {
		t.Errorf("of a volume that is not mounted: %v", err)
	}
	path, err := v.SetUp(t.Context(), pod(podUID), persistent())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Usage(t.Context(), podUID, "pv1"); !errors.Is(err, ErrNoUsage) {
		t.Errorf("of a driver that does not know: %v", err)
	}
	b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	got, err := v.Usage(t.Context(), podUID, "pv1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Usage{Bytes: &Amount{1000, 400, 600}, Inodes: &Amount{100, 1, 99}}, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	asked := b.driver.Request("NodeGetVolumeStats").(*csipb.NodeGetVolumeStatsRequest)
	staged := b.driver.Request("NodeStageVolume").(*csipb.NodeStageVolumeRequest)
	if asked.GetVolumeId() != "vol-1" || asked.GetVolumePath() != path || asked.GetStagingTargetPath() != staged.GetStagingTargetPath() {
		t.Errorf("asked for %v", asked)
	}
}

// The health of a volume is asked for if the gate is on and the driver knows it,
// also if it cannot be measured.
func TestHealth(t *testing.T) {
	b := newBench(t, csiDriver())
	v := b.volumes(b.files)
	if _, err := v.SetUp(t.Context(), pod(podUID), persistent()); err != nil {
		t.Fatal(err)
	}
	b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_GET_VOLUME_HEALTH)
	if _, err := v.Usage(t.Context(), podUID, "pv1"); !errors.Is(err, ErrNoUsage) {
		t.Errorf("without the gate: %v", err)
	}
	v.Health = true
	for name, c := range map[string]struct {
		entries []*csipb.VolumeHealth_VolumeHealthEntry
		want    Health
	}{
		"healthy":      {nil, Health{}},
		"a newer type": {[]*csipb.VolumeHealth_VolumeHealthEntry{{Status: 77, Reason: "New"}}, Health{}},
		"degraded": {[]*csipb.VolumeHealth_VolumeHealthEntry{{Status: 77}, {Status: csipb.VolumeHealthErrorType_DEGRADED, Reason: "Slow", Message: "one disk is left"}},
			Health{Abnormal: true, Message: "Slow: one disk is left"}},
	} {
		b.driver.Unhealthy = c.entries
		got, err := v.Usage(t.Context(), podUID, "pv1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&c.want, got.Health); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	b.driver.Capabilities = append(b.driver.Capabilities, csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	b.driver.Before = func(_ context.Context, method string, _ any) error {
		if method == "NodeGetVolumeStats" {
			return errors.New("no such disk")
		}
		return nil
	}
	b.driver.Unhealthy = []*csipb.VolumeHealth_VolumeHealthEntry{{Status: csipb.VolumeHealthErrorType_INACCESSIBLE, Reason: "Gone"}}
	if got, err := v.Usage(t.Context(), podUID, "pv1"); err == nil || got.Health == nil || !got.Health.Abnormal {
		t.Errorf("of a volume that cannot be measured: %+v, %v", got, err)
	}
}

// Answers that make no sense are not shown.
func TestUsageThatMakesNoSense(t *testing.T) {
	for name, answer := range map[string][]*csipb.VolumeUsage{
		"nothing":           nil,
		"of an unknown one": {{Total: 1}},
		"negative":          {{Unit: csipb.VolumeUsage_BYTES, Total: 1, Used: -1}},
	} {
		if got, err := usageOf(answer); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
