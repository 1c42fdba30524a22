package csi

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// TearDown unmounts the volumes of a pod. Their drivers do it; only what they
// leave is unmounted here. Nothing of the pod's directory of volumes is left
// afterwards.
func (v *Volumes) TearDown(ctx context.Context, uid types.UID) error {
	all, err := v.ofPod(uid)
	if err != nil {
		return err
	}
	errs := supervise.ForEach(len(all), func(i int) error {
		began := time.Now()
		err := v.takeDown(ctx, &all[i], targetName, v.unpublish)
		if v.Unmounted != nil {
			v.Unmounted(all[i].Driver, began, err)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(all) > 0 {
		if err := v.FS.Remove(v.volumesDir(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	changed := len(all) > 0
	v.mu.Lock()
	for key := range v.needs {
		if key.pod == uid {
			delete(v.needs, key)
			changed = true
		}
	}
	v.mu.Unlock()
	if changed {
		v.wakeUnstager()
		v.Report()
	}
	return nil
}

// takeDown calls unmount with a recorded volume, which it locks, and with what is
// mounted. A directory without a record is removed. A concurrent SetUp may add the
// record; then the directory stays.
func (v *Volumes) takeDown(ctx context.Context, p *placed, name string, unmount func(ctx context.Context, p *placed, target string) error) error {
	target := filepath.Join(p.dir, name)
	lost := errors.Is(p.err, errNoRecord)
	if p.err != nil && !lost {
		return p.err
	}
	staged, read := p.dir, v.readStaged
	if p.pod != "" {
		staged, read = v.stageDir(p.Driver, p.Handle), v.readRecord // of no volume without a record: the pod's goroutine alone sets it up
	}
	unlock, err := v.locks.Lock(ctx, staged)
	if err != nil {
		return err
	}
	defer unlock()
	if lost {
		if _, err := read(p.dir); !errors.Is(err, errNoRecord) {
			return err
		}
		return v.discard(p.dir, target)
	}
	return unmount(ctx, p, target)
}

// unpublish unmounts one volume of a pod, which is locked.
func (v *Volumes) unpublish(ctx context.Context, p *placed, target string) error {
	name := filepath.Base(p.dir)
	failed := func(err error) error {
		return &Failure{Step: "UnmountVolume.TearDown", Volume: name, Err: err}
	}
	at, err := v.drivers.endpoint(p.Driver)
	if err != nil {
		return failed(err)
	}
	if err := v.FS.Remove(v.readyFile(p.pod, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	// Containers may have mounted something below, which the driver does not know.
	if err := v.unmountBelow(target, false); err != nil {
		return failed(err)
	}
	if err := callUnpublish(ctx, at, p.Handle, target); err != nil {
		return failed(err)
	}
	if err := v.release(p.dir, target); err != nil {
		return failed(err)
	}
	return nil
}

// callUnpublish has a driver unmount a volume of a pod.
func callUnpublish(ctx context.Context, at endpoint, handle, target string) error {
	return callWhole(ctx, at, func(ctx context.Context, node csipb.NodeClient) error {
		_, err := node.NodeUnpublishVolume(ctx, &csipb.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: at.named(target)})
		return err
	})
}

func (v *Volumes) wakeUnstager() {
	select {
	case v.freed <- struct{}{}:
	default:
	}
}

// Times of the search for staged volumes that no pod has.
const (
	searchPeriod = 10 * time.Second
	firstRetry   = 500 * time.Millisecond
	maxRetry     = 2*time.Minute + 2*time.Second
)

// retry is the back-off of a volume that could not be unstaged.
type retry struct {
	after time.Time
	wait  time.Duration
	busy  bool
}

// unstager unstages the volumes that no pod has.
type unstager struct {
	volumes *Volumes
	retries map[string]*retry // by directory; used by one goroutine only
	ended   chan ending
}

// ending is the end of an attempt to unstage the volume of a directory.
type ending struct {
	dir string
	err error
}

// Run keeps the node's drivers known in the API, and unstages the volumes that
// no pod has any more, until ctx ends.
func (v *Volumes) Run(ctx context.Context) {
	var group supervise.WaitGroup
	defer group.Wait()
	group.Go(ctx, func() { v.drivers.run(ctx) })
	u := &unstager{volumes: v, retries: make(map[string]*retry), ended: make(chan ending)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-v.freed:
		case e := <-u.ended:
			u.settle(e)
		}
		next := searchPeriod
		supervise.Contain(ctx, "volumes", func() { next = u.search(ctx, &group) })
		timer.Reset(next)
	}
}

// settle notes the end of an attempt.
func (u *unstager) settle(e ending) {
	r := u.retries[e.dir]
	r.busy = false
	if e.err == nil {
		delete(u.retries, e.dir)
		return
	}
	r.wait = min(max(2*r.wait, firstRetry), maxRetry)
	r.after = time.Now().Add(r.wait)
}

// search begins to unstage each volume that no pod has, and returns when to
// search again.
func (u *unstager) search(ctx context.Context, group *supervise.WaitGroup) time.Duration {
	next := searchPeriod
	if u.volumes.again.Swap(false) {
		for _, r := range u.retries {
			r.after = time.Time{}
		}
	}
	staged, err := u.volumes.staged()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing the staged volumes failed, will try again")
	}
	used := u.used(len(staged) > 0)
	for i := range staged {
		p := &staged[i]
		if p.err == nil && used[p.volume()] {
			continue
		}
		r := u.retries[p.dir]
		if r == nil {
			r = &retry{}
		}
		if wait := time.Until(r.after); r.busy || wait > 0 {
			next = min(next, max(wait, firstRetry))
			continue
		}
		r.busy = true
		u.retries[p.dir] = r
		group.Go(ctx, func() {
			err := supervise.Call(func() error { return u.volumes.unstage(ctx, p) })
			if err != nil && ctx.Err() == nil {
				supervise.LogFailure(ctx, "volumes", err, "Unstaging a volume failed, will try again")
			}
			select {
			case u.ended <- ending{p.dir, err}:
			case <-ctx.Done():
			}
		})
	}
	return next
}

// used returns the volumes that pods have, as far as their records can be read.
func (u *unstager) used(needed bool) map[v1.UniqueVolumeName]bool {
	out := map[v1.UniqueVolumeName]bool{}
	if !needed {
		return out
	}
	all, _ := u.volumes.ofPods() // unstage looks again, and reports errors
	for _, p := range all {
		if p.err == nil {
			out[p.volume()] = true
		}
	}
	return out
}

// unstage unmounts a staged volume, unless a pod has it by now.
func (v *Volumes) unstage(ctx context.Context, p *placed) error {
	return v.takeDown(ctx, p, stagingName, v.unstageLocked)
}

func (v *Volumes) unstageLocked(ctx context.Context, p *placed, target string) error {
	if users, err := v.users(p.volume()); err != nil || len(users) > 0 {
		return err
	}
	failed := func(err error) error {
		return &Failure{Step: "UnmountDevice", Volume: string(p.volume()), Err: err}
	}
	at, err := v.drivers.endpoint(p.Driver)
	if err != nil {
		return failed(err)
	}
	can, err := askCapabilities(ctx, at)
	if err != nil {
		return failed(err)
	}
	if can[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] { // as when it was staged, unless the driver was replaced
		err = callWhole(ctx, at, func(ctx context.Context, node csipb.NodeClient) error {
			_, err := node.NodeUnstageVolume(ctx, &csipb.NodeUnstageVolumeRequest{VolumeId: p.Handle, StagingTargetPath: at.named(target)})
			return err
		})
	}
	if err != nil {
		return failed(err)
	}
	if err := v.release(p.dir, target); err != nil {
		return failed(err)
	}
	klog.FromContext(ctx).V(2).Info("Unstaged volume", "volume", p.volume())
	v.Report()
	return nil
}
