// Command googlestorage is Google's storage for tests. fake-gcs-server has the JSON interface that Hadoop's client uses. In front of it, this
// program translates the XML interface that obstore uses: whole and multipart uploads with conditions, copies, listings by pages.
//
// Requests to the XML interface without a token are rejected. fake-gcs-server evaluates the conditions. With -careless, the conditions of the
// XML interface are ignored, as by a store that a node must not trust.
package main

import (
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const token = "token-of-tests"

type store struct {
	json     http.Handler
	careless bool
	pageSize string
	mutex    sync.Mutex
	uploads  map[string]map[int][]byte
}

type object struct {
	Name       string `json:"name"`
	Size       string `json:"size"`
	Updated    string `json:"updated"`
	Etag       string `json:"etag"`
	Generation string `json:"generation"`
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token": %q, "token_type": "Bearer", "expires_in": 3600}`, token)
		return
	}
	for _, own := range []string{"/storage/v1/", "/upload/", "/download/", "/batch/", "/resumable/", "/_internal/"} {
		if strings.HasPrefix(r.URL.Path, own) {
			s.json.ServeHTTP(w, r)
			return
		}
	}
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	switch {
	case key == "":
		s.list(w, bucket, query)
	case r.Method == http.MethodPost && query.Has("uploads"):
		s.begin(w)
	case r.Method == http.MethodPut && query.Has("uploadId"):
		s.part(w, r, query)
	case r.Method == http.MethodPost && query.Has("uploadId"):
		s.complete(w, r, bucket, key, query.Get("uploadId"))
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut && r.Header.Get("x-goog-copy-source") != "":
		s.copy(w, r, bucket, key)
	case r.Method == http.MethodPut:
		body, _ := io.ReadAll(r.Body)
		s.put(w, r, bucket, key, string(body))
	case r.Method == http.MethodDelete:
		done := s.ask(http.MethodDelete, "/storage/v1/b/"+bucket+"/o/"+url.PathEscape(key), "")
		if done.Code == http.StatusOK {
			done.Code = http.StatusNoContent
		}
		w.WriteHeader(done.Code)
	default:
		r.URL.RawPath = ""
		s.read(w, r, bucket, key)
	}
}

func (s *store) ask(method, address, body string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	s.json.ServeHTTP(answer, httptest.NewRequest(method, address, strings.NewReader(body)))
	return answer
}

func (s *store) read(w http.ResponseWriter, r *http.Request, bucket, key string) {
	inner := r.Clone(r.Context())
	inner.URL = &url.URL{Path: "/storage/v1/b/" + bucket + "/o/" + key, RawPath: "/storage/v1/b/" + bucket + "/o/" + url.PathEscape(key), RawQuery: "alt=media"}
	s.json.ServeHTTP(w, inner)
}

func (s *store) put(w http.ResponseWriter, r *http.Request, bucket, key, body string) {
	query := url.Values{"uploadType": {"media"}, "name": {key}}
	if wanted := r.Header.Get("x-goog-if-generation-match"); wanted != "" && !s.careless {
		query.Set("ifGenerationMatch", wanted)
	}
	answer := s.ask(http.MethodPost, "/upload/storage/v1/b/"+bucket+"/o?"+query.Encode(), body)
	told(w, answer, "")
}

// told forwards an answer, with the generation and the ETag of the object in the headers of the XML interface.
func told(w http.ResponseWriter, answer *httptest.ResponseRecorder, body string) {
	var made object
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &made) != nil {
		http.Error(w, answer.Body.String(), answer.Code)
		return
	}
	w.Header().Set("ETag", `"`+strings.Trim(made.Etag, `"`)+`"`)
	w.Header().Set("x-goog-generation", made.Generation)
	if body == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	fmt.Fprintf(w, body, made.Etag)
}

func (s *store) copy(w http.ResponseWriter, r *http.Request, bucket, key string) {
	source, _ := url.PathUnescape(r.Header.Get("x-goog-copy-source"))
	_, from, _ := strings.Cut(source, "/")
	place := "/storage/v1/b/" + bucket + "/o/"
	answer := s.ask(http.MethodPost, place+url.PathEscape(from)+"/copyTo/b/"+bucket+"/o/"+url.PathEscape(key), "{}")
	told(w, answer, "<CopyObjectResult><ETag>%s</ETag></CopyObjectResult>")
}

func (s *store) begin(w http.ResponseWriter) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := strconv.Itoa(len(s.uploads) + 1)
	s.uploads[name] = map[int][]byte{}
	fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", name)
}

func (s *store) part(w http.ResponseWriter, r *http.Request, query url.Values) {
	body, _ := io.ReadAll(r.Body)
	number, _ := strconv.Atoi(query.Get("partNumber"))
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.uploads[query.Get("uploadId")][number] = body
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, number))
}

func (s *store) complete(w http.ResponseWriter, r *http.Request, bucket, key, name string) {
	s.mutex.Lock()
	parts := s.uploads[name]
	s.uploads[name] = nil
	s.mutex.Unlock()
	numbers := []int{}
	for number := range parts {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	var whole strings.Builder
	for _, number := range numbers {
		whole.Write(parts[number])
	}
	query := url.Values{"uploadType": {"media"}, "name": {key}}
	answer := s.ask(http.MethodPost, "/upload/storage/v1/b/"+bucket+"/o?"+query.Encode(), whole.String())
	told(w, answer, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>")
}

func (s *store) list(w http.ResponseWriter, bucket string, query url.Values) {
	asked := url.Values{"prefix": {query.Get("prefix")}, "delimiter": {query.Get("delimiter")}, "maxResults": {s.pageSize}}
	if next := query.Get("continuation-token"); next != "" {
		asked.Set("pageToken", next)
	}
	if after := query.Get("start-after"); after != "" {
		asked.Set("startOffset", after+"\x00")
	}
	answer := s.ask(http.MethodGet, "/storage/v1/b/"+bucket+"/o?"+asked.Encode(), "")
	var found struct {
		Items         []object `json:"items"`
		Prefixes      []string `json:"prefixes"`
		NextPageToken string   `json:"nextPageToken"`
	}
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &found) != nil {
		http.Error(w, answer.Body.String(), answer.Code)
		return
	}
	type contents struct {
		Key, Size, LastModified, ETag string
	}
	type prefix struct {
		Prefix string
	}
	page := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		NextContinuationToken string   `xml:",omitempty"`
		Contents              []contents
		CommonPrefixes        []prefix
	}{NextContinuationToken: found.NextPageToken}
	for _, each := range found.Items {
		page.Contents = append(page.Contents, contents{each.Name, each.Size, each.Updated, each.Etag})
	}
	for _, each := range found.Prefixes {
		page.CommonPrefixes = append(page.CommonPrefixes, prefix{each})
	}
	_ = xml.NewEncoder(w).Encode(page)
}

func main() {
	port := flag.Int("port", 4443, "")
	bucket := flag.String("bucket", "lake", "")
	careless := flag.Bool("careless", false, "")
	pageSize := flag.String("page", "1000", "")
	flag.Parse()
	address := fmt.Sprintf("127.0.0.1:%d", *port)
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, Scheme: "http", ExternalURL: "http://" + address, PublicHost: address})
	if err != nil {
		log.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: *bucket})
	own := &store{json: server.HTTPHandler(), careless: *careless, pageSize: *pageSize, uploads: map[string]map[int][]byte{}}
	log.Fatal(http.ListenAndServe(address, own)) //nolint:gosec
}
