package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	serviceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"
	requestTimeout       = 30 * time.Second
	maxAnswer            = 16 << 20
)

// cluster is the API server as a pod sees it: by the variables that every pod has, and its service account.
type cluster struct {
	server    string
	namespace string
	tokenFile string
	client    *http.Client
}

// answerError is an answer of the server other than success.
type answerError struct {
	status  int
	message string
}

func (answer *answerError) Error() string {
	return fmt.Sprintf("the server answers %d: %s", answer.status, answer.message)
}

func openCluster() (*cluster, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a pod")
	}
	folder := os.Getenv("GANGLINE_SERVICE_ACCOUNT")
	if folder == "" {
		folder = serviceAccountFolder
	}
	namespace, err := os.ReadFile(filepath.Join(folder, "namespace"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: the pod has no service account token: is automountServiceAccountToken false?", folder)
	} else if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(folder, "ca.crt"))
	}
	// HTTP/1.1, which can be upgraded, and no proxy: variables of a user's image are not meant for this address.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return &cluster{
		server:    "https://" + net.JoinHostPort(host, port),
		namespace: strings.TrimSpace(string(namespace)),
		tokenFile: filepath.Join(folder, "token"),
		client:    &http.Client{Transport: transport},
	}, nil
}

// header has the token as it is now: the kubelet renews the file.
func (c *cluster) header() (http.Header, error) {
	token, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	header.Set("User-Agent", "gangline-agent")
	return header, nil
}

func (c *cluster) podURL(name string) string {
	return c.server + "/api/v1/namespaces/" + url.PathEscape(c.namespace) + "/pods/" + url.PathEscape(name)
}

func (c *cluster) pod(ctx context.Context, name string) (*pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	header, err := c.header()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.podURL(name), nil)
	if err != nil {
		return nil, err
	}
	request.Header = header
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, answerOf(response)
	}
	var found pod
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&found); err != nil {
		return nil, fmt.Errorf("pod %s: %w", name, err)
	}
	return &found, nil
}

// answerOf is the message of a Status object, or the text of what is none.
func answerOf(response *http.Response) *answerError {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	var status status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return &answerError{response.StatusCode, status.Message}
	}
	return &answerError{response.StatusCode, strings.TrimSpace(string(body))}
}
