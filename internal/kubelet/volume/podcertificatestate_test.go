package volume

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// A metric has the state of each certificate. Events say once that the signer refuses one,
// and that one is overdue or has expired.
func TestStatesOfCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, recorder, shown := newCertified(t), record.NewFakeRecorder(10), prometheus.NewRegistry()
		c.cache.Recorder = recorder
		shown.MustRegister(&CertificateStates{Volumes: &Manager{Certificates: c.cache}, Pods: func() []*v1.Pod { return []*v1.Pod{c.pod} }})
		want := func(state string, events ...string) {
			t.Helper()
			const name = "kubelet_podcertificate_states"
			page := fmt.Sprintf(`# HELP %s [ALPHA] Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.
# TYPE %s gauge
%s{signer_name="example.com/mesh",state=%q} 1
`, name, name, name, state)
			if err := testutil.GatherAndCompare(shown, strings.NewReader(page), name); err != nil {
				t.Error(err)
			}
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, <-recorder.Events)
			}
			if !slices.Equal(got, events) {
				t.Errorf("%s: events %q, want %q", state, got, events)
			}
		}
		ask := func() {
			t.Helper()
			if _, _, err := c.ask(); err != nil {
				t.Error(err)
			}
		}
		const overdue, expired = "Warning CertificateOverdueForRefresh PodCertificate refresh overdue", "Warning CertificateExpired PodCertificate expired"
		if n, err := testutil.GatherAndCount(shown); n != 0 || err != nil {
			t.Errorf("%d metrics before anybody asks for the certificate, %v", n, err)
		}
		if _, _, err := c.ask(); !errors.Is(err, errNotIssued) {
			t.Error(err)
		}
		want("not_yet_issued")
		c.answer("req-1", "Issued", "one")
		ask()
		want("fresh")
		time.Sleep(20*time.Hour + certificateJitter + time.Second)
		ask() // requests the next one, which nobody answers
		want("fresh")
		time.Sleep(renewalOverdue)
		ask()
		ask()
		want("overdue_for_refresh", overdue)
		time.Sleep(4 * time.Hour)
		ask()
		ask()
		want("expired", expired)
		c.answer("req-2", "Issued", "two")
		ask()
		want("fresh")
		time.Sleep(24*time.Hour + time.Second)
		ask()
		want("expired", overdue, expired)

		c.answer("req-3", "Denied", "")
		for range 2 {
			if _, _, err := c.ask(); err == nil {
				t.Error("a certificate that was denied is there")
			}
		}
		want("denied", `Warning Denied PodCertificateRequest default/req-3 was denied, reason="Policy", message="says so"`)
		c.cache.Forget(c.pod.UID)
		_, _, _ = c.ask()
		c.answer("req-4", "Failed", "")
		if _, _, err := c.ask(); err == nil {
			t.Error("a certificate that failed is there")
		}
		want("failed", `Warning Failed PodCertificateRequest default/req-4 failed, reason="Policy", message="says so"`)
	})
}
