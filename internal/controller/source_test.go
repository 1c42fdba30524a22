package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// An object that has replaced another one of its name is a deletion and an addition, also if
// the informer has missed the deletion.
func TestReplacedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(uid types.UID, version string) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: uid, ResourceVersion: version}}
		}
		c := controllertest.New(t, pod("1", ""))
		var got []string
		name := func(p *v1.Pod) string {
			if p == nil {
				return "none"
			}
			return string(p.UID)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- controller.Serve(ctx, []controller.Source{
				controller.On(c.Env.Client.Informers.Core().V1().Pods().Informer(), func(old, new *v1.Pod) {
					got = append(got, name(old)+" "+name(new))
				}),
			}, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		synctest.Wait()
		for i, uid := range []types.UID{"1", "2"} {
			if err := c.Fake.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod(uid, fmt.Sprint(1000+i)), "default"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"none 1", "1 1", "1 none", "none 2"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
