package pod

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/probe"
	"github.com/coracle-io/coracle/internal/timespan"
)

// maxHookOutput is how many bytes of a hook's output an error quotes.
const maxHookOutput = 1 << 10

// hook runs a postStart or preStop handler until it ends or ctx does.
func (k *kuberuntime) hook(ctx context.Context, h *v1.LifecycleHandler, t probe.Target) error {
	switch {
	case h.Exec != nil:
		output, err := k.config.Handlers.Command(ctx, h.Exec.Command, t, 0)
		output = output[:min(len(output), maxHookOutput)]
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) for Container %q in Pod %q failed - error: %w, message: %q", h.Exec.Command, t.Container.Name, t.Pod.Namespace+"/"+t.Pod.Name, err, output) //nolint:staticcheck // upstream's wording
		}
		return nil
	case h.HTTPGet != nil:
		fallback, err := k.config.Handlers.Hook(ctx, h.HTTPGet, t)
		if err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) for Container %q in Pod %q failed - error: %w", h.HTTPGet.Path, t.Container.Name, t.Pod.Namespace+"/"+t.Pod.Name, err)
		}
		if fallback {
			k.config.Recorder.Event(ContainerReference(t.Pod, t.Container.Name), v1.EventTypeWarning, "LifecycleHTTPFallback", "request to HTTPS lifecycle hook got HTTP response, retry with HTTP succeeded")
		}
		return nil
	case h.Sleep != nil:
		timer := time.NewTimer(timespan.Seconds(h.Sleep.Seconds))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return nil
	}
	return fmt.Errorf("container %s has a lifecycle hook without a handler", t.Container.Name)
}
