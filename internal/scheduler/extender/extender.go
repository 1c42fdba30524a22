// Package extender calls scheduler extenders: HTTP services that take part in
// the scheduling of pods, as KubeSchedulerConfiguration v1 declares them.
//
//	filters ─► Filter ─► scores ─► Prioritize ─► Bind
//	              │ no node is left
//	              └─► DefaultPreemption ─► ProcessPreemption
//
// Each call is one POST of JSON (k8s.io/kube-scheduler/extender/v1) and ends
// after the extender's httpTimeout. An extender without a verb, or without
// interest in the pod, is not asked. The failure of an ignorable extender is
// logged and counts as no answer; the failure of another one ends the attempt.
//
// Answers are not trusted: their size is bounded, they can only choose among
// the nodes they were asked about, and their messages are cut.
package extender

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/podquery"
	"github.com/coracle-io/coracle/internal/scheduler/config"
)

// defaultTimeout is how long a call may take if the configuration does not say.
const defaultTimeout = 5 * time.Second

// Extenders are the extenders of a configuration. Filter, Prioritize and
// ProcessPreemption belong to the scheduling cycle; Bind is safe for concurrent
// use.
type Extenders struct {
	list []*extender // ignorable ones last, as upstream asks them
}

// extender is one of them.
type extender struct {
	config.Extender
	url     string // without a slash at the end
	managed map[v1.ResourceName]bool
	client  *http.Client
}

// New makes the clients of the extenders. The error names the field that is wrong.
func New(configured []config.Extender) (*Extenders, error) {
	var first, last []*extender
	for i := range configured {
		e, err := newExtender(configured[i])
		if err != nil {
			return nil, fmt.Errorf("extenders[%d].%w", i, err)
		}
		if e.Ignorable {
			last = append(last, e)
		} else {
			first = append(first, e)
		}
	}
	return &Extenders{list: append(first, last...)}, nil
}

func newExtender(c config.Extender) (*extender, error) {
	u, err := url.Parse(c.URLPrefix)
	switch {
	case err != nil:
		return nil, fmt.Errorf("urlPrefix: Invalid value: %q: %w", c.URLPrefix, err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("urlPrefix: Invalid value: %q: must begin with http:// or https:// and name a host", c.URLPrefix)
	case c.EnableHTTPS && u.Scheme != "https":
		return nil, fmt.Errorf("urlPrefix: Invalid value: %q: must begin with https:// if enableHTTPS is set", c.URLPrefix)
	}
	transport, err := newTransport(&c)
	if err != nil {
		return nil, fmt.Errorf("tlsConfig: %w", err)
	}
	if c.HTTPTimeout == 0 {
		c.HTTPTimeout = defaultTimeout
	}
	e := &extender{Extender: c, url: strings.TrimRight(c.URLPrefix, "/"), managed: map[v1.ResourceName]bool{}}
	for _, r := range c.ManagedResources {
		e.managed[v1.ResourceName(r.Name)] = true
	}
	e.client = &http.Client{
		Transport: transport, Timeout: c.HTTPTimeout,
		// A redirect would send pods to a place that is not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e, nil
}

// newTransport reads the files of tlsConfig. HTTPS without an authority is not
// verified, as upstream has it.
func newTransport(c *config.Extender) (*http.Transport, error) {
	var connection rest.Config
	if t := c.TLS; t != nil {
		connection.TLSClientConfig = rest.TLSClientConfig{
			Insecure: t.Insecure, ServerName: t.ServerName, CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile,
			CertData: t.CertData, KeyData: t.KeyData, CAData: t.CAData,
		}
	}
	if c.EnableHTTPS && connection.CAFile == "" && len(connection.CAData) == 0 {
		connection.Insecure = true
	}
	tls, err := rest.TLSConfigFor(&connection)
	if err != nil {
		return nil, err
	}
	return utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tls}), nil
}

// CloseIdleConnections closes the connections that are not in use.
func (e *Extenders) CloseIdleConnections() {
	for _, one := range e.list {
		one.client.CloseIdleConnections()
	}
}

// IsFilter reports whether an extender can reject nodes.
func (e *Extenders) IsFilter() bool {
	for _, one := range e.list {
		if one.FilterVerb != "" {
			return true
		}
	}
	return false
}

// interested yields the extenders that have a verb and want to know of the pod.
func (e *Extenders) interested(pod *v1.Pod, verb func(*extender) string) []*extender {
	var out []*extender
	for _, one := range e.list {
		if verb(one) != "" && one.isInterested(pod) {
			out = append(out, one)
		}
	}
	return out
}

// isInterested reports whether the pod has a resource that the extender manages.
// An extender that manages no resources is interested in every pod.
func (e *extender) isInterested(pod *v1.Pod) bool {
	if len(e.managed) == 0 {
		return true
	}
	for c := range podquery.Containers(&pod.Spec) {
		for _, list := range []v1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name := range list {
				if e.managed[name] {
					return true
				}
			}
		}
	}
	return false
}

// ignored logs the failure of an ignorable extender and returns nil; the failure of
// another one is returned.
func (e *extender) ignored(ctx context.Context, pod *v1.Pod, err error) error {
	if err == nil || !e.Ignorable || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	klog.FromContext(ctx).Info("Skipping an ignorable extender that failed", "extender", e.URLPrefix, "pod", klog.KObj(pod), "err", err.Error())
	return nil
}
