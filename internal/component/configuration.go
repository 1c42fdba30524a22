package component

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"k8s.io/klog/v2"
)

// writeConfiguration writes an encoded configuration to the file of --write-config-to.
func writeConfiguration(ctx context.Context, file string, data []byte) error {
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	klog.FromContext(ctx).Info("Wrote configuration", "file", file)
	return nil
}

// showConfiguration answers a request for /configz with a configuration, under the name
// that upstream gives it there.
func showConfiguration(w http.ResponseWriter, name string, configuration any) {
	data, err := json.Marshal(map[string]any{name: configuration})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(data)
}
