package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Many keys of one namespace are made one after another, and do not keep a pod of
// another one waiting for more than the one that is being made.
func TestKeysAreMadeOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := newKeyMaker()
		var making, most atomic.Int32
		keys.generate = func(kind string) (keyPair, error) {
			most.Store(max(most.Load(), making.Add(1)))
			time.Sleep(time.Second)
			making.Add(-1)
			return keyPair{private: []byte(kind)}, nil
		}
		var busy sync.WaitGroup
		for pod := range 3 {
			busy.Go(func() {
				for i := range 5 {
					at := certificateKey{types.UID(fmt.Sprint("pod", pod)), "tls", i}
					if _, err := keys.get(t.Context(), "busy", at, "RSA4096"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		if _, err := keys.get(t.Context(), "web", certificateKey{pod: "web"}, "RSA3072"); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("a pod of another namespace waited %v for its key, which takes a second", waited)
		}
		busy.Wait()
		if n := most.Load(); n != 1 {
			t.Errorf("%d keys were made at a time", n)
		}
	})
}

// A pod that ends waits for no key, and none is made for it any more. A key that was
// begun is there for the next attempt of a pod that has only run out of time.
func TestKeysOfPodsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := newKeyMaker()
		made, goOn := 0, make(chan struct{})
		keys.generate = func(string) (keyPair, error) {
			<-goOn
			made++
			return keyPair{}, nil
		}
		ends := make(chan error)
		get := func(ctx context.Context, pod types.UID) {
			go func() {
				_, err := keys.get(ctx, "default", certificateKey{pod: pod}, "RSA4096")
				ends <- err
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		get(ctx, "begun")
		get(ctx, "waits")
		cancel()
		for range 2 {
			if err := <-ends; !errors.Is(err, context.Canceled) {
				t.Errorf("a pod that ends: %v", err)
			}
		}
		keys.forget("begun")
		keys.forget("waits")
		goOn <- struct{}{}
		synctest.Wait()
		if made != 1 || len(keys.made) > 0 {
			t.Errorf("%d keys were made and %d are kept for pods that ended", made, len(keys.made))
		}

		late, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		get(late, "slow")
		if err := <-ends; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a pod that has no time left: %v", err)
		}
		get(t.Context(), "slow")
		goOn <- struct{}{}
		if err := <-ends; err != nil || made != 2 {
			t.Errorf("its next attempt: %v, %d keys were made, want 2", err, made)
		}
	})
}
