package kubernetesservice

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestIdentity(t *testing.T) {
	client := fake.NewClientset()
	gone, here := &identity{client: client, host: "gone", holder: "gone_1"}, &identity{client: client, host: "here", holder: "here_1"}
	now := time.Now()
	renew := func(i *identity, at time.Time) {
		t.Helper()
		if err := i.renew(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	leases := func() (holders []string) {
		list, err := client.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list.Items {
			holders = append(holders, *l.Spec.HolderIdentity)
			if l.Labels["kubernetes.io/hostname"] == "here" && l.Name != "apiserver-7twjcuexlgwzsxbm2ff4wjvsoi" {
				t.Errorf("name %s", l.Name)
			}
		}
		return holders
	}
	renew(gone, now.Add(-2*time.Hour))
	renew(here, now.Add(-90*time.Minute))
	if got := leases(); len(got) != 2 {
		t.Errorf("both there: %v", got)
	}
	again := &identity{client: client, host: "here", holder: "here_2"}
	renew(again, now)
	if got := leases(); len(got) != 1 || got[0] != "here_2" {
		t.Errorf("one started again, the other gone: %v", got)
	}
}

// A server that renews its lease by a clock that is behind by hours is not taken for gone, until it
// renews no more.
func TestIdentityWithAnotherClock(t *testing.T) {
	client := fake.NewClientset()
	here, behind := &identity{client: client, host: "here", holder: "here_1"}, &identity{client: client, host: "behind", holder: "behind_1"}
	now := time.Now()
	for hour, there := range []bool{true, true, true, true, false, false} {
		at := now.Add(time.Duration(hour) * identityInterval)
		if there {
			if err := behind.renew(t.Context(), at.Add(-3*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if hour == 0 {
			continue // this server starts an hour later
		}
		if err := here.renew(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		list, err := client.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// The first sweep has only the times in the leases.
		if want := map[bool]int{true: 2, false: 1}[hour > 1 && there]; len(list.Items) != want {
			t.Errorf("after %d hours there are %d leases, want %d", hour, len(list.Items), want)
		}
	}
}
