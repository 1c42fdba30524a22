package csi

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	events "k8s.io/client-go/tools/record"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// slowDisk is a disk on which each of some files takes a while to change.
type slowDisk struct {
	files.Memory
	files int
	each  time.Duration
	gid   int
}

func (d *slowDisk) Share(_ string, gid int, _ bool, visited func()) error {
	for range d.files {
		<-time.After(d.each)
		visited()
	}
	d.gid = gid
	return nil
}

// A pod is told after half a minute that its volume is being given to its group, and each
// minute how far that has come.
func TestSlowChangeOfTheGroup(t *testing.T) {
	const about = "Warning VolumePermissionChangeInProgress Setting volume ownership for uid/volumes/v"
	const advice = about + " is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/"
	for name, test := range map[string]struct {
		files int
		each  time.Duration
		want  []string // beginnings of the events
	}{
		"fast":            {1000, time.Millisecond, nil},
		"almost too slow": {1, 29 * time.Second, nil},
		"slow":            {2, 20 * time.Second, []string{advice}},
		"very slow":       {8, 25 * time.Second, []string{advice, about + ", processed 5 files.", about + ", processed 8 files."}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder, group := events.NewFakeRecorder(10), int64(7)
				disk := &slowDisk{files: test.files, each: test.each}
				p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: &group}}}
				change := GroupChange{FS: disk, Recorder: recorder, Pod: p, Dir: "/v", Shown: "uid/volumes/v"}
				if err := change.Apply(); err != nil || disk.gid != 7 {
					t.Errorf("the group is %d, %v", disk.gid, err)
				}
				var got []string
				for range len(recorder.Events) {
					got = append(got, <-recorder.Events)
				}
				if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
					t.Errorf("events %q, want %q", got, test.want)
				}
			})
		})
	}
}
