package volume

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// renewalOverdue is how long after the time of its renewal a certificate is overdue.
const renewalOverdue = 10 * time.Minute

// state returns upstream's name for what is known of a certificate.
func (k *certificate) state(now time.Time) string {
	switch {
	case k.refusal.Type == certificatesv1.PodCertificateRequestConditionTypeDenied:
		return "denied"
	case k.refused != "":
		return "failed"
	case k.chain == nil:
		return "not_yet_issued"
	case now.After(k.expires):
		return "expired"
	case now.After(k.renew.Add(renewalOverdue)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// State implements PodCertificates.
func (c *CertificateCache) State(uid types.UID, volume string, index int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.certificates[certificateKey{uid, volume, index}]; ok {
		return known.state(time.Now())
	}
	return ""
}

// announce records an event, with upstream's reason and message, if the signer has just
// refused a certificate, and once each if one is overdue or has expired.
func (c *CertificateCache) announce(pod *v1.Pod, k *certificate, now time.Time) {
	if c.Recorder == nil {
		return
	}
	state := k.state(now)
	switch state {
	case "denied", "failed":
		how := state
		if state == "denied" {
			how = "was denied"
		}
		c.Recorder.Eventf(pod, v1.EventTypeWarning, k.refusal.Type, "PodCertificateRequest %s/%s %s, reason=%q, message=%q",
			pod.Namespace, k.pending.name, how, k.refusal.Reason, k.refusal.Message)
	case "overdue_for_refresh", "expired":
		if !k.saidOverdue {
			c.Recorder.Event(pod, v1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
			k.saidOverdue = true
		}
		if state == "expired" && !k.saidExpired {
			c.Recorder.Event(pod, v1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
			k.saidExpired = true
		}
	}
}

// CertificateStates counts the sources of certificates in the volumes of pods when it is
// asked, by upstream's name. Those that nothing is known of are not counted.
type CertificateStates struct {
	Volumes *Manager
	Pods    func() []*v1.Pod // that have not ended
}

func certificateStates() *prometheus.Desc {
	return prometheus.NewDesc("kubelet_podcertificate_states", "[ALPHA] Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.",
		[]string{"signer_name", "state"}, nil)
}

// Describe implements prometheus.Collector.
func (c *CertificateStates) Describe(out chan<- *prometheus.Desc) { out <- certificateStates() }

// Collect implements prometheus.Collector.
func (c *CertificateStates) Collect(out chan<- prometheus.Metric) {
	if c.Volumes.Certificates == nil {
		return
	}
	type series struct{ signer, state string }
	counts := map[series]int{}
	for _, pod := range c.Pods() {
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if vol.Projected == nil {
				continue
			}
			for index := range vol.Projected.Sources {
				source := vol.Projected.Sources[index].PodCertificate
				if source == nil {
					continue
				}
				if state := c.Volumes.Certificates.State(pod.UID, vol.Name, index); state != "" {
					counts[series{source.SignerName, state}]++
				}
			}
		}
	}
	for of, n := range counts {
		out <- prometheus.MustNewConstMetric(certificateStates(), prometheus.GaugeValue, float64(n), of.signer, of.state)
	}
}
