// The app router: a component of the server around one of the page, and both import the model.

import Classifier from "../../classifier.js";
import {TinyedgeError} from "../../model.tinyedge/index.js";

export default function Page() {
  return (
    <main>
      {TinyedgeError.name.length > 0 && "imported on the server"} <Classifier />
    </main>
  );
}
