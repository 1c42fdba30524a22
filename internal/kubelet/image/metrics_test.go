package image

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/coracle-io/coracle/internal/kubelet/cri/inmemory/inmemorytest"
	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Requests for images, pulls, their records and credential providers are measured.
func TestMetrics(t *testing.T) {
	const name = "private.example.com/team/app:1"
	providers, _ := providersOf(t, plugin("Image", ""))
	runtime := inmemorytest.New()
	runtime.Images().NeedPassword(name, "opensesame")
	registry := prometheus.NewRegistry()
	m := New(Config{
		Configuration: &kubeletconfig.KubeletConfiguration{SerializeImagePulls: new(true), RegistryPullQPS: new(int32(0))},
		RootDirectory: "/var/lib/kubelet", Images: runtime.Images(), Files: &files.Memory{}, Providers: providers, Metrics: registry,
	})
	ensure := func(image string, policy v1.PullPolicy) {
		_, _ = m.Ensure(t.Context(), &v1.Container{Name: "app", Image: image, ImagePullPolicy: policy}, "pod", Logins{}, nil, func(string, string, string) {})
	}
	ensure(name, v1.PullIfNotPresent)
	ensure(name, v1.PullIfNotPresent)
	ensure(name, v1.PullAlways)
	ensure("example.com/absent:1", v1.PullNever)
	const want = `
# HELP kubelet_image_manager_ensure_image_requests_total [ALPHA] Number of ensure-image requests processed by the kubelet.
# TYPE kubelet_image_manager_ensure_image_requests_total counter
kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="ifnotpresent",pull_required="true"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="never",pull_required="unknown"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="true",pull_policy="ifnotpresent",pull_required="false"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",pull_policy="always",pull_required="true"} 1
# HELP kubelet_imagemanager_image_mustpull_checks_total [ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an image
# TYPE kubelet_imagemanager_image_mustpull_checks_total counter
kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"} 1
# HELP kubelet_imagemanager_ondisk_pulledrecords [ALPHA] Number of ImagePulledRecords stored on disk.
# TYPE kubelet_imagemanager_ondisk_pulledrecords gauge
kubelet_imagemanager_ondisk_pulledrecords 1
# HELP kubelet_imagemanager_ondisk_pullintents [ALPHA] Number of ImagePullIntents stored on disk.
# TYPE kubelet_imagemanager_ondisk_pullintents gauge
kubelet_imagemanager_ondisk_pullintents 0
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_image_manager_ensure_image_requests_total",
		"kubelet_imagemanager_image_mustpull_checks_total", "kubelet_imagemanager_ondisk_pulledrecords", "kubelet_imagemanager_ondisk_pullintents"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"kubelet_image_pull_duration_seconds", "kubelet_credential_provider_plugin_duration", "kubelet_credential_provider_config_info"} {
		if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
			t.Errorf("%d series of %s, %v", n, name, err)
		}
	}
	broken, _ := providersOf(t, "#!/bin/sh\nexit 1\n")
	broken.Credentials(t.Context(), name, nil)
	if n := testutil.ToFloat64(broken.metrics.errors.WithLabelValues("login")); n != 1 {
		t.Errorf("%v errors of a provider that fails", n)
	}
}

func TestSizeRange(t *testing.T) {
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "10MB-100MB", 1<<30 - 1: "500MB-1GB", 5 << 30: "5GB-10GB", 200 << 30: "GT100GB"} {
		if got := sizeRange(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}
