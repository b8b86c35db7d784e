// Rendered by the server for each request.

import Classifier from "../classifier.js";

export const getServerSideProps = () => ({props: {at: "rendered on the server"}});

export default function Page({at}) {
  return (
    <main>
      {at} <Classifier />
    </main>
  );
}
